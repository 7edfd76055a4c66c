"""accelerate, PEFT, timm, torchvision."""

from __future__ import annotations

import copy
from typing import Any

import torch
from harness import Compiler, Outcome, program, size, state_of
from library_programs.transformers_ import bert, gpt, padded, texts
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH = size(32, 512), size(4, 256)


def net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(12, WIDTH), torch.nn.GELU(), torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 3)
    )


def _loop(accelerator: Any, model: Any, original: Any) -> Outcome:
    optimizer = torch.optim.AdamW(original.parameters(), lr=1e-2)
    data = DataLoader(TensorDataset(torch.randn(8 * BATCH, 12), torch.arange(8 * BATCH) % 3), batch_size=BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    losses = []
    for x, y in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(float(loss.detach()))
    plain = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    state = accelerator.get_state_dict(model)

    def step() -> None:
        model(x).sum().backward()

    return Outcome((losses, {k: v.clone() for k, v in state.items()}, state_of(plain)), step)


@program("accelerate")
def accelerate_compiled_before(compiler: Compiler) -> Outcome:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    model = net()
    return _loop(Accelerator(cpu=True, gradient_accumulation_steps=2), compiler(model), model)


@program("accelerate", tolerance=2e-2)
def accelerate_mixed_precision(compiler: Compiler) -> Outcome:
    """Mixed precision changes ``forward`` of what it prepares; it is compiled in place before."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    model = compiler.in_place(net())
    return _loop(Accelerator(cpu=True, mixed_precision="bf16"), model, model)


@program("peft", "transformers", recompiles=4)
def peft_lora(compiler: Compiler) -> Outcome:
    import peft

    model = peft.get_peft_model(bert(), peft.LoraConfig(r=4, target_modules=["query", "value"], lora_dropout=0.0))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    compiled = compiler(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    model.train()
    for at in range(4):
        batch = padded(texts()[at * 4 : at * 4 + 4])
        loss = compiled(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    model.eval()
    adapters = {k: v.clone() for k, v in peft.get_peft_model_state_dict(model).items()}
    with torch.no_grad():
        tuned = compiled(**batch).logits
        with compiled.disable_adapter():
            plain = compiled(**batch).logits
        merged = copy.deepcopy(compiled).merge_and_unload()(**batch).logits
    return Outcome((losses, adapters, tuned, plain, merged), lambda: compiled(**batch).loss.backward())


@program(
    "peft", "transformers", recompiles=4, uncompiled=True, warns="jitney.compile(model.base_model.model, inplace=True)"
)
def peft_generate_whole(compiler: Compiler) -> Outcome:
    """Compiled as a whole, it says what to compile instead."""
    import peft

    model = peft.get_peft_model(gpt(), peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    return Outcome(
        compiler(model.eval()).generate(input_ids=torch.tensor([[5, 6, 7]]), max_new_tokens=4, do_sample=False)
    )


@program("peft", "transformers", recompiles=4)
def peft_generate(compiler: Compiler) -> Outcome:
    import peft

    compiled = peft.get_peft_model(gpt(), peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")).eval()
    compiler.in_place(compiled.base_model.model)  # its generate calls this one
    prompt = torch.randint(5, 100, (1, 6))

    def step() -> Any:
        return compiled.generate(input_ids=prompt, max_new_tokens=8, do_sample=False)

    return Outcome((step(), step()), step)


@program("peft", "transformers", recompiles=5)
def peft_adapters_in_turn(compiler: Compiler) -> Outcome:
    """Two adapters of one model, chosen in turn, then mixed."""
    import peft

    model = peft.get_peft_model(bert(), peft.LoraConfig(r=4, target_modules=["query"]), adapter_name="a")
    model.add_adapter("b", peft.LoraConfig(r=2, use_dora=True, target_modules=["value"]))
    for name, parameter in model.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    compiled = compiler(model.eval())
    batch = padded(texts()[:4])

    def logits_of(adapter: str) -> torch.Tensor:
        model.set_adapter(adapter)
        return compiled(**batch).logits

    def step() -> Any:
        with torch.no_grad():
            return [logits_of(adapter) for adapter in ("a", "b", "a")]

    first = step()
    model.add_weighted_adapter(["a", "a"], [0.5, 0.5], "mixed", combination_type="linear")
    with torch.no_grad():
        return Outcome((first, logits_of("mixed"), step()), step)


@program("timm", recompiles=1)
def timm_training(compiler: Compiler) -> Outcome:
    """As timm's train.py does: its optimizer, schedule, loss, mixup and averaged weights."""
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3

    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        embed_dim=size(32, 192),
        depth=2,
        num_heads=2,
        num_classes=5,
        drop_path_rate=0.0,
    )
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=10)
    average = ModelEmaV3(model, decay=0.9)
    mixup = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=5)
    task = compiler(model)
    loss_of = SoftTargetCrossEntropy()
    losses = []
    for at in range(4):
        x, y = mixup(torch.randn(4, 3, 32, 32), torch.arange(4))
        loss = loss_of(task(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model, step=at)
        schedule.step_update(at)
        losses.append(float(loss.detach()))
    return Outcome((losses, state_of(model), state_of(average.module)), lambda: loss_of(task(x), y).backward())


@program("timm", recompiles=1, warns="ResNet.forward_features runs uncompiled")
def timm_convnet(compiler: Compiler) -> Outcome:
    import timm

    model = timm.create_model("resnet10t", num_classes=5, drop_path_rate=0.1).eval()
    compiled = compiler(model)
    x = torch.randn(2, 3, 64, 64)

    def step() -> Any:
        with torch.inference_mode():
            return compiled(x), compiled.forward_features(x)[:, :2]

    return Outcome(step(), step)


@program("torchvision", recompiles=1)
def torchvision_reference(compiler: Compiler) -> Outcome:
    """As torchvision's references/classification/train.py does."""
    import torchvision
    from torchvision.transforms import v2

    model = torchvision.models.resnet18(num_classes=5)
    compiled = compiler(model)
    average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda old, new, n: 0.9 * old + 0.1 * new)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4)
    changes = v2.Compose([v2.RandomHorizontalFlip(), v2.Normalize([0.5] * 3, [0.5] * 3)])
    mix = v2.MixUp(num_classes=5)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    for _ in range(2):
        x, y = mix(changes(torch.rand(4, 3, 32, 32)), torch.arange(4))
        loss = criterion(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
        losses.append(float(loss.detach()))
    return Outcome(
        (losses, copy.deepcopy(optimizer.state_dict()["param_groups"])), lambda: criterion(compiled(x), y).backward()
    )


@program("torchvision")
def torchvision_features(compiler: Compiler) -> Outcome:
    """A feature extractor, which is a module that holds a graph of torch.fx."""
    import torchvision
    from torchvision.models.feature_extraction import create_feature_extractor

    model = torchvision.models.shufflenet_v2_x0_5(weights=None).eval()
    compiled = compiler(create_feature_extractor(model, {"stage2": "early", "stage4": "late"}))
    x = torch.rand(2, 3, 64, 64)

    def step() -> Any:
        with torch.no_grad():
            return compiled(x)

    return Outcome((step(), step()), step)

"""Images, sound and trainers: Encodec, Segment Anything, LPIPS, mmengine, skorch, ignite, fvcore, GluonTS."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from harness import Compiler, Outcome, program, size, state_of
from torch import nn


@program("transformers")
def encodec_codes(compiler: Compiler) -> Outcome:
    """Encodec pads by what it computes of its buffers."""
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(
        num_filters=size(4, 16), upsampling_ratios=[4, 2], hidden_size=16, codebook_size=16, codebook_dim=16,
        target_bandwidths=[1.5, 24.0], num_lstm_layers=1,
    )  # fmt: skip
    compiled = compiler(EncodecModel(config).eval())
    sound = torch.randn(1, 1, 800)

    def step() -> Any:
        with torch.no_grad():
            out = compiled(sound)
            return out.audio_codes, out.audio_values

    return Outcome((step(), step()), step)


@program("segment-anything")
def sam_prompts(compiler: Compiler) -> Outcome:
    """Masks for points and for a box."""
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    encoder = ImageEncoderViT(
        img_size=64, patch_size=8, embed_dim=size(32, 128), depth=2, num_heads=2, out_chans=16, window_size=4,
        global_attn_indexes=(1,), use_rel_pos=True,
    )  # fmt: skip
    prompts = PromptEncoder(embed_dim=16, image_embedding_size=(8, 8), input_image_size=(64, 64), mask_in_chans=4)
    transformer = TwoWayTransformer(depth=2, embedding_dim=16, mlp_dim=32, num_heads=2)
    decoder = MaskDecoder(num_multimask_outputs=3, transformer=transformer, transformer_dim=16)
    sam = Sam(encoder, prompts, decoder).eval()
    compiled = compiler(lambda given: sam(given, multimask_output=True))
    image = torch.rand(3, 48, 64) * 255
    points = {"point_coords": torch.tensor([[[10.0, 12.0], [30.0, 20.0]]]), "point_labels": torch.tensor([[1, 0]])}
    given = [
        {"image": image, "original_size": (48, 64), **points},
        {"image": image.flip(1), "original_size": (48, 64), "boxes": torch.tensor([[2.0, 3.0, 30.0, 40.0]])},
    ]

    def step() -> Any:
        with torch.no_grad():
            return [dict(out) for out in compiled(given)]

    return Outcome((step(), step()), step)


@program("lpips")
def lpips_loss(compiler: Compiler) -> Outcome:
    import lpips

    measure = lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False)
    model = nn.Conv2d(3, 3, 3, padding=1)
    x, y = torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64)
    loss_of = compiler(lambda x, y: measure(model(x), y, normalize=True).mean())
    return _steps(model, lambda: loss_of(x, y))


@program("mmengine", recompiles=1)
def mmengine_step(compiler: Compiler) -> Outcome:
    """``train_step`` as a whole: preprocessing, losses, the optimizer's wrapper."""
    from mmengine.model import BaseModel
    from mmengine.optim import OptimWrapper

    class Net(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))

        def forward(self, x: torch.Tensor, y: torch.Tensor, mode: str = "tensor") -> Any:
            out = self.net(x)
            return {"loss": nn.functional.cross_entropy(out, y)} if mode == "loss" else out

    model = Net()
    wrapped = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=0.01))
    step = compiler(lambda data: model.train_step(data, wrapped))
    data = {"x": torch.randn(8, 6), "y": torch.randint(0, 4, (8,))}
    losses = [step(data)["loss"].detach().clone() for _ in range(4)]
    return Outcome((losses, state_of(model)), lambda: step(data))


@program("skorch", recompiles=1)
def skorch_fit(compiler: Compiler) -> Outcome:
    from skorch import NeuralNetClassifier

    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1))
    x, y = np.random.randn(40, 6).astype("float32"), np.random.randint(0, 3, 40)
    net = NeuralNetClassifier(compiler(model), max_epochs=3, lr=0.1, batch_size=8, verbose=0, train_split=None)
    net.fit(x, y)
    losses = [float(loss) for loss in net.history[:, "train_loss"]]
    return Outcome((torch.as_tensor(net.predict_proba(x)), losses), lambda: net.predict_proba(x))


@program("pytorch-ignite", recompiles=1)
def ignite_engines(compiler: Compiler) -> Outcome:
    """A trainer and an evaluator."""
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss

    model, losses = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), []
    compiled, loss_of = compiler(model), nn.functional.cross_entropy
    data = [(torch.randn(8, 6), torch.arange(8) % 3) for _ in range(4)]
    trainer = create_supervised_trainer(compiled, torch.optim.SGD(model.parameters(), lr=0.1), loss_of)
    evaluator = create_supervised_evaluator(compiled, {"accuracy": Accuracy(), "loss": Loss(loss_of)})
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    trainer.run(data, max_epochs=2)
    evaluator.run(data)
    results = (losses, dict(evaluator.state.metrics), state_of(model))
    return Outcome(results, lambda: compiled(data[0][0]).sum().backward())


@program("fvcore")
def fvcore_losses(compiler: Compiler) -> Outcome:
    from fvcore.nn import giou_loss, sigmoid_focal_loss, smooth_l1_loss

    model = nn.Linear(6, 4)

    def corners(boxes: torch.Tensor) -> torch.Tensor:
        return torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)

    def loss_of(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        boxes = model(x).sigmoid()
        focal = sigmoid_focal_loss(boxes, t, alpha=0.25, gamma=2.0, reduction="mean")
        overlap = giou_loss(corners(boxes), corners(t), reduction="mean")
        return focal + smooth_l1_loss(boxes, t, 0.1, "sum") + overlap

    compiled = compiler(loss_of)
    x, t = torch.randn(5, 6), torch.rand(5, 4).round()
    return _steps(model, lambda: compiled(x, t))


@program("gluonts")
def gluonts_deepar(compiler: Compiler) -> Outcome:
    from gluonts.torch.model.deepar.module import DeepARModel

    model = DeepARModel("D", 12, 4, num_layers=1, hidden_size=size(8, 40), lags_seq=[1, 2, 7], dropout_rate=0.0)
    loss_of, past = compiler(model.loss), model._past_length
    given = {
        "feat_static_cat": torch.zeros(2, 1, dtype=torch.long),
        "feat_static_real": torch.zeros(2, 1),
        "past_time_feat": torch.randn(2, past, 1),
        "past_target": torch.rand(2, past),
        "past_observed_values": torch.ones(2, past),
        "future_time_feat": torch.randn(2, 4, 1),
        "future_target": torch.rand(2, 4),
        "future_observed_values": torch.ones(2, 4),
    }
    return _steps(model, lambda: loss_of(**given).mean())


def _steps(model: nn.Module, loss_of: Any) -> Outcome:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return Outcome((losses, state_of(model)), lambda: loss_of().backward())

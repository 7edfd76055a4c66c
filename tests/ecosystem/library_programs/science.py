"""diffusers, PyG, torchmetrics, einops, jaxtyping with beartype, torchdiffeq."""

from __future__ import annotations

from typing import Any

import torch
from harness import Compiler, Outcome, program, size, state_of

NODES = size(20, 2000)


def unet() -> Any:
    import diffusers

    return diffusers.UNet2DModel(
        sample_size=size(8, 16),
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=size((8, 16), (32, 64)),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )


@program("diffusers", recompiles=1)
def diffusers_sampling(compiler: Compiler) -> Outcome:
    """Denoising with DDIM; the network compiled."""
    import diffusers

    model = unet().eval()
    compiled = compiler(model)
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=100)
    noise = torch.randn(1, 3, 8, 8)

    @torch.no_grad()
    def step() -> Any:
        scheduler.set_timesteps(5)
        sample = noise
        for t in scheduler.timesteps:
            sample = scheduler.step(compiled(sample, t).sample, t, sample).prev_sample
        return sample

    return Outcome((step(), step()), step)


@program("diffusers", recompiles=1)
def diffusers_pipeline(compiler: Compiler) -> Outcome:
    """A pipeline whose network is compiled in place, as ``pipe.unet.compile()`` does."""
    import diffusers

    pipe = diffusers.DDPMPipeline(unet(), diffusers.DDPMScheduler(num_train_timesteps=50))
    pipe.set_progress_bar_config(disable=True)
    compiler.in_place(pipe.unet)

    def step() -> Any:
        return torch.as_tensor(
            pipe(2, generator=torch.Generator().manual_seed(0), num_inference_steps=4, output_type="np").images
        )

    return Outcome((step(), step()), step)


@program("diffusers", recompiles=1)
def diffusers_training(compiler: Compiler) -> Outcome:
    import diffusers
    from diffusers.training_utils import EMAModel

    model = unet()
    compiled = compiler(model)
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=100)
    average = EMAModel(model.parameters(), decay=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        clean, noise, t = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8), torch.randint(0, 100, (2,))
        noisy = scheduler.add_noise(clean, noise, t)
        loss = torch.nn.functional.mse_loss(compiled(noisy, t, return_dict=False)[0], noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        losses.append(float(loss.detach()))
    return Outcome((losses, state_of(model)), lambda: compiled(noisy, t).sample.sum().backward())


def _scheduler(compiler: Compiler, scheduler: Any) -> Outcome:
    noise, residual = torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)
    step_of = compiler(lambda t, sample: scheduler.step(residual, t, sample, return_dict=False)[0])

    @torch.no_grad()
    def step() -> Any:
        torch.manual_seed(1)
        scheduler.set_timesteps(8)
        sample = noise
        for t in scheduler.timesteps:
            sample = step_of(t, sample)
        return sample

    return Outcome((step(), step()), step)


@program("diffusers", recompiles=1)
def diffusers_ddim_step(compiler: Compiler) -> Outcome:
    import diffusers

    return _scheduler(compiler, diffusers.DDIMScheduler(num_train_timesteps=100))


@program("diffusers", recompiles=2, breaks=3)
def diffusers_ddpm_step(compiler: Compiler) -> Outcome:
    import diffusers

    return _scheduler(compiler, diffusers.DDPMScheduler(num_train_timesteps=100))


@program("diffusers", recompiles=3, breaks=3)
def diffusers_euler_step(compiler: Compiler) -> Outcome:
    import diffusers

    scheduler = diffusers.EulerDiscreteScheduler(num_train_timesteps=100)
    scheduler.is_scale_input_called = True
    return _scheduler(compiler, scheduler)


@program("diffusers", recompiles=4, breaks=2)
def diffusers_dpm_step(compiler: Compiler) -> Outcome:
    import diffusers

    return _scheduler(compiler, diffusers.DPMSolverMultistepScheduler(num_train_timesteps=100))


@program("diffusers", recompiles=1)
def diffusers_flux(compiler: Compiler) -> Outcome:
    """Flux's transformer, of images of three sizes."""
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
    ).eval()  # fmt: skip
    compiled = compiler(model)
    texts = {"encoder_hidden_states": torch.randn(1, 6, 32), "pooled_projections": torch.randn(1, 32)}
    images = [(torch.randn(1, n, 4), torch.zeros(n, 3)) for n in (16, 25, 36)]

    def step() -> Any:
        with torch.no_grad():
            return [
                compiled(hidden_states=x, timestep=torch.tensor([0.5]), img_ids=at, txt_ids=torch.zeros(6, 3), **texts)
                for x, at in images
            ]

    return Outcome([out.sample for out in step()], step)


@program("torch_geometric", breaks=2)
def pyg_gcn(compiler: Compiler) -> Outcome:
    """Node classification with two graph convolutions."""
    from torch_geometric.nn import GCNConv

    class GCN(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GCNConv(8, 16)
            self.second = GCNConv(16, 4)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x, edges).relu(), edges)

    model = GCN()
    compiled = compiler(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, edges, y = torch.randn(NODES, 8), torch.randint(0, NODES, (2, 3 * NODES)), torch.arange(NODES) % 4
    losses = []
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(compiled(x, edges), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return Outcome((losses, state_of(model)), lambda: compiled(x, edges).sum().backward())


@program("torch_geometric", recompiles=6, breaks=2)
def pyg_attention(compiler: Compiler) -> Outcome:
    """Attention and sampled means over batches of graphs, pooled."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATConv, SAGEConv, global_mean_pool

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GATConv(8, 8, heads=2)
            self.second = SAGEConv(16, 8)
            self.head = torch.nn.Linear(8, 2)

        def forward(self, data: Any) -> torch.Tensor:
            x = self.first(data.x, data.edge_index).relu()
            x = self.second(x, data.edge_index)
            return self.head(global_mean_pool(x, data.batch, data.num_graphs))

    model = Net()
    compiled = compiler(model)
    batches = [
        Batch.from_data_list([Data(torch.randn(n, 8), torch.randint(0, n, (2, 3 * n))) for n in sizes])
        for sizes in ((5, 6), (7, 4), (8, 9))
    ]
    results = [compiled(b) for b in batches]
    results[0].sum().backward()
    return Outcome((results, [p.grad for p in model.parameters()]), lambda: compiled(batches[0]))


@program("torchmetrics", recompiles=2)
def torchmetrics_evaluation(compiler: Compiler) -> Outcome:
    """Metrics of a compiled model's predictions."""
    import torchmetrics

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    compiled = compiler(model)
    metrics = torchmetrics.MetricCollection(
        [
            torchmetrics.Accuracy("multiclass", num_classes=4),
            torchmetrics.F1Score("multiclass", num_classes=4, average="macro"),
            torchmetrics.AUROC("multiclass", num_classes=4),
        ]
    )
    loss = torchmetrics.MeanMetric()
    with torch.no_grad():
        for _ in range(3):
            x, y = torch.randn(10, 8), torch.randint(0, 4, (10,))
            logits = compiled(x)
            metrics.update(logits.softmax(-1), y)
            loss.update(torch.nn.functional.cross_entropy(logits, y))
    return Outcome((metrics.compute(), loss.compute()), lambda: compiled(x))


@program("torchmetrics", recompiles=1)
def torchmetrics_inside(compiler: Compiler) -> Outcome:
    """A metric that is updated in the compiled step."""
    import torchmetrics

    model = torch.nn.Linear(8, 4)
    metric = torchmetrics.MeanSquaredError()
    accuracy = torchmetrics.Accuracy("multiclass", num_classes=4)

    @compiler
    def evaluate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        metric.update(out, torch.nn.functional.one_hot(y, 4).float())
        accuracy.update(out, y)
        return out.sum()

    sums = []
    with torch.no_grad():
        for _ in range(3):
            x, y = torch.randn(10, 8), torch.randint(0, 4, (10,))
            sums.append(evaluate(x, y))
    return Outcome((sums, metric.compute(), accuracy.compute()), lambda: evaluate(x, y))


@program("einops")
def einops_layers(compiler: Compiler) -> Outcome:
    import einops
    from einops.layers.torch import EinMix, Rearrange, Reduce

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)
            self.mix = EinMix("b n c -> b n d", weight_shape="c d", c=12, d=24)
            self.pool = Reduce("b n d -> b d", "mean")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = einops.rearrange(self.mix(self.patches(x)), "b n (t h d) -> t b h n d", t=3, h=2)
            scores = einops.einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
            out = einops.rearrange(scores @ v, "b h n d -> b n (h d)")
            packed, shape = einops.pack([out, out[:, 0]], "b * d")
            first, last = einops.unpack(packed, shape, "b * d")
            return self.pool(first) + last + einops.repeat(first[:, 0], "b d -> b (d r)", r=1)

    model = Attention()
    compiled = compiler(model)
    x = torch.randn(2, 3, 8, 8)
    out = compiled(x)
    out.sum().backward()
    return Outcome((out, [p.grad for p in model.parameters()]), lambda: compiled(x).sum().backward())


@program("jaxtyping", "beartype", recompiles=1, breaks=1)
def jaxtyping_beartype(compiler: Compiler) -> Outcome:
    """Functions whose shapes are checked at run time, compiled; a wrong shape is an error."""
    from beartype import beartype
    from jaxtyping import Float, jaxtyped

    @jaxtyped(typechecker=beartype)
    def attend(q: Float[torch.Tensor, "b n d"], k: Float[torch.Tensor, "b m d"]) -> Float[torch.Tensor, "b n m"]:  # noqa: F722
        return (q @ k.mT).softmax(-1)

    compiled = compiler(lambda q, k: attend(q, k) * 2)
    compiled_itself = compiler(attend)
    q, k = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    try:
        compiled(q, torch.randn(3, 5, 4))
        failed = ""
    except Exception as error:
        failed = type(error).__name__
    return Outcome((compiled(q, k), compiled_itself(q, k), failed), lambda: compiled(q, k))


def _odeint(compiler: Compiler, **arguments: Any) -> Outcome:
    import torchdiffeq

    field = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    compiled = compiler(field)
    y, times = torch.randn(4, 2), torch.linspace(0, 1, 5)

    def step() -> torch.Tensor:
        out = torchdiffeq.odeint(lambda t, y: compiled(y), y, times, **arguments)
        out.sum().backward()
        return out

    out = step()
    return Outcome((out, [p.grad.clone() for p in field.parameters()]), step)


@program("torchdiffeq", recompiles=1)
def torchdiffeq_field(compiler: Compiler) -> Outcome:
    """The field compiled, the solver plain."""
    return _odeint(compiler, method="dopri5")


@program("torchdiffeq")
def torchdiffeq_fixed(compiler: Compiler) -> Outcome:
    """A solver of fixed steps, compiled as a whole."""
    return _solver(compiler, "rk4")


@program("torchdiffeq", recompiles=8, breaks=14)
def torchdiffeq_adaptive(compiler: Compiler) -> Outcome:
    """An adaptive solver, compiled as a whole."""
    return _solver(compiler, "dopri5")


def _solver(compiler: Compiler, method: str) -> Outcome:
    import torchdiffeq

    field = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = field

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y)

    flow = Field()
    y, times = torch.randn(4, 2), torch.linspace(0, 1, 5)
    solve = compiler(lambda y: torchdiffeq.odeint(flow, y, times, method=method))

    def step() -> torch.Tensor:
        field.zero_grad()
        out = solve(y)
        out.sum().backward()
        return out

    step()
    return Outcome((step(), [p.grad.clone() for p in field.parameters()]), step)

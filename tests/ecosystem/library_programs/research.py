"""Libraries of layers, losses, optimizers, augmentations and models of probabilities."""

from __future__ import annotations

from typing import Any

import torch
from harness import Compiler, Outcome, program, state_of, trained


@program("x-transformers")
def x_transformers(compiler: Compiler) -> Outcome:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)
    model = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers)
    return trained(compiler, model, lambda: (torch.randint(0, 50, (2, 16)),), lambda out: out.square().mean())


@program("vector-quantize-pytorch", breaks=2, recompiles=1)
def vector_quantize(compiler: Compiler) -> Outcome:
    from vector_quantize_pytorch import VectorQuantize

    model = VectorQuantize(dim=16, codebook_size=12, decay=0.8, commitment_weight=1.0)
    head = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh())

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.quantize = head, model

        def forward(self, x: torch.Tensor) -> Any:
            return self.quantize(self.head(x))

    def loss_of(out: Any) -> torch.Tensor:
        return out[0].square().mean() + out[2].sum()

    return trained(compiler, Encoder(), lambda: (torch.randn(2, 6, 8),), loss_of)


@program("gpytorch", breaks=1, recompiles=1)
def gpytorch_regression(compiler: Compiler) -> Outcome:
    """The kernel of a Gaussian process compiled; likelihood and solver are the library's."""
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    compiled = compiler(lambda a, b: kernel(a, b).to_dense())
    x = torch.linspace(0, 1, 10)[:, None]
    out = compiled(x, x)
    out.sum().backward()
    return Outcome((out, [p.grad for p in kernel.parameters()]), lambda: compiled(x, x).sum().backward())


@program("pytorch-metric-learning")
def metric_learning(compiler: Compiler) -> Outcome:
    from pytorch_metric_learning import losses

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    loss_of = losses.NTXentLoss()
    labels = torch.arange(12) % 3
    return trained(compiler, model, lambda: (torch.randn(12, 8),), lambda out: loss_of(out, labels))


@program("pytorch-metric-learning", breaks=1)
def metric_learning_loss(compiler: Compiler) -> Outcome:
    """The loss compiled, too."""
    from pytorch_metric_learning import losses

    loss_of = compiler(losses.NTXentLoss())
    x, labels = torch.randn(12, 8, requires_grad=True), torch.arange(12) % 3
    loss = loss_of(x, labels)
    loss.backward()
    return Outcome((loss, x.grad), lambda: loss_of(x, labels).backward())


@program("open-clip-torch")
def open_clip_training(compiler: Compiler) -> Outcome:
    import open_clip

    model = open_clip.model.CLIP(
        embed_dim=16,
        vision_cfg=open_clip.CLIPVisionCfg(layers=1, width=32, head_width=16, patch_size=8, image_size=16),
        text_cfg=open_clip.CLIPTextCfg(context_length=8, vocab_size=50, width=32, heads=2, layers=1),
    )
    loss_of = open_clip.ClipLoss()
    return trained(
        compiler, model, lambda: (torch.randn(3, 3, 16, 16), torch.randint(1, 50, (3, 8))), lambda out: loss_of(*out)
    )


@program("segmentation-models-pytorch")
def segmentation_unet(compiler: Compiler) -> Outcome:
    import segmentation_models_pytorch as smp

    model = smp.Unet("resnet18", encoder_weights=None, classes=2, decoder_channels=(32, 16, 8, 8, 8)).eval()
    compiled = compiler(model)
    x = torch.randn(1, 3, 32, 32)
    loss_of = smp.losses.DiceLoss("multiclass")

    def step() -> Any:
        out = compiled(x)
        loss = loss_of(out, torch.zeros(1, 32, 32, dtype=torch.long))
        loss.backward()
        return out

    out = step()
    return Outcome((out, [p.grad for p in model.parameters() if p.grad is not None][-4:]), step)


@program("schedulefree")
def schedulefree_adamw(compiler: Compiler) -> Outcome:
    import schedulefree

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    compiled = compiler(model)
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=1e-2)
    optimizer.train()
    losses = []
    for _ in range(4):
        loss = compiled(torch.randn(6, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    optimizer.eval()
    return Outcome((losses, state_of(model)), lambda: compiled(torch.ones(6, 8)))


@program("torchsde", recompiles=1)
def torchsde_field(compiler: Compiler) -> Outcome:
    import torchsde

    class Sde(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift = compiler(torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)))

        def f(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y)

        def g(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return torch.full_like(y, 0.1)

    sde = Sde()
    y, times = torch.ones(4, 3), torch.linspace(0, 1, 4)

    def step() -> Any:
        brownian = torchsde.BrownianInterval(0.0, 1.0, size=(4, 3), entropy=7)
        return torchsde.sdeint(sde, y, times, bm=brownian, dt=0.1, method="euler")

    return Outcome((step(), step()), step)


@program("tensordict", breaks=3)  # once einx has imported frozendict, whose hook for MutableMapping is asked; else none
def tensordict_module(compiler: Compiler) -> Outcome:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    model = TensorDictSequential(
        TensorDictModule(torch.nn.Linear(4, 8), in_keys=["obs"], out_keys=["hidden"]),
        TensorDictModule(torch.nn.Linear(8, 2), in_keys=["hidden"], out_keys=["action"]),
    )
    compiled = compiler(lambda obs: model(TensorDict({"obs": obs}, batch_size=[3]))["action"])
    x = torch.randn(3, 4)
    out = compiled(x)
    out.sum().backward()
    return Outcome((out, [p.grad for p in model.parameters()]), lambda: compiled(x))


@program("pyro-ppl")
def pyro_svi(compiler: Compiler) -> Outcome:
    """A network inside of a model of probabilities, trained by stochastic variational inference."""
    import pyro
    from pyro import distributions as dist

    pyro.clear_param_store()
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    compiled = compiler(net)

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        scale = pyro.sample("scale", dist.LogNormal(0.0, 0.1))
        pyro.module("net", net)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(compiled(x)[:, 0], scale), obs=y)

    def guide(x: torch.Tensor, y: torch.Tensor) -> None:
        place = pyro.param("place", torch.tensor(0.0))
        pyro.sample("scale", dist.LogNormal(place, 0.1))

    svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 1e-2}), pyro.infer.Trace_ELBO())
    x, y = torch.randn(6, 3), torch.randn(6)
    return Outcome(([svi.step(x, y) for _ in range(3)], state_of(net)), lambda: svi.step(x, y))


@program("captum", recompiles=1)
def captum_attributions(compiler: Compiler) -> Outcome:
    from captum.attr import IntegratedGradients, Saliency

    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).eval()
    compiled = compiler(model)
    x = torch.randn(2, 5, requires_grad=True)

    def step() -> Any:
        return (
            IntegratedGradients(compiled).attribute(x, target=1, n_steps=8),
            Saliency(compiled).attribute(x, target=0),
        )

    return Outcome(step(), step)


@program("kornia", recompiles=1)
def kornia_filters(compiler: Compiler) -> Outcome:
    import kornia

    def augment(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        x = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0))
        x = kornia.geometry.transform.rotate(x, angle)
        return kornia.color.rgb_to_hsv(x.clamp(0.01, 1)) + kornia.filters.sobel(x)

    compiled = compiler(augment)
    x, angle = torch.rand(2, 3, 16, 16), torch.tensor([10.0, 40.0])
    return Outcome((compiled(x, angle), compiled(x, angle + 5)), lambda: compiled(x, angle))


@program("e3nn", recompiles=1)
def e3nn_messages(compiler: Compiler) -> Outcome:
    """Messages between points, by spherical harmonics and tensor products; edges of varying number."""
    from e3nn import o3
    from e3nn.nn import FullyConnectedNet

    class Messages(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.directions = o3.Irreps.spherical_harmonics(2)
            self.product = o3.FullyConnectedTensorProduct(
                "4x0e+2x1o", self.directions, "8x0e+4x1o", shared_weights=False
            )
            self.weights = FullyConnectedNet([5, 16, self.product.weight_numel], torch.relu)
            self.out = o3.Linear("8x0e+4x1o", "1x0e")

        def forward(self, x: torch.Tensor, points: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            source, target = edges
            ways = points[source] - points[target]
            harmonics = o3.spherical_harmonics(self.directions, ways, True, normalization="component")
            distances = torch.exp(-((ways.norm(dim=1, keepdim=True) - torch.linspace(0, 2, 5)) ** 2))
            sent = self.product(x[source], harmonics, self.weights(distances))
            return self.out(torch.zeros(len(x), sent.shape[1]).index_add(0, target, sent))

    def make() -> Any:
        edges = torch.randint(0, 6, (2, 14))
        return torch.randn(6, 10), torch.randn(6, 3), edges[:, edges[0] != edges[1]]

    return trained(compiler, Messages(), make, lambda out: out.square().mean())


@program("zuko")
def zuko_flow(compiler: Compiler) -> Outcome:
    """A normalising flow of splines, by its likelihood."""
    import zuko

    flow = zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16, 16))

    class Likelihood(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = flow

        def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
            return -self.flow(context).log_prob(x)

    return trained(compiler, Likelihood(), lambda: (torch.randn(10, 3), torch.randn(10, 2)), torch.Tensor.mean)


@program("torchrl", "tensordict")
def torchrl_ppo(compiler: Compiler) -> Outcome:
    """The loss of proximal policy optimisation."""
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    nn = torch.nn
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(policy, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"], distribution_class=TanhNormal, return_log_prob=True,
    )  # fmt: skip
    value = ValueOperator(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)), in_keys=["observation"])
    over = {name: torch.zeros(16, 1, dtype=torch.bool) for name in ("done", "terminated")}
    later = TensorDict({"observation": torch.randn(16, 4), "reward": torch.randn(16, 1), **over}, [16])
    seen = TensorDict({"observation": torch.randn(16, 4), "next": later}, [16])
    with torch.no_grad():
        actor(seen)
    GAE(gamma=0.99, lmbda=0.95, value_network=value)(seen)
    loss = ClipPPOLoss(actor, value, entropy_bonus=True)

    def total(given: Any) -> torch.Tensor:
        parts = loss(given)
        return parts["loss_objective"] + parts["loss_critic"] + parts["loss_entropy"]

    compiled = compiler(total)
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        result = compiled(seen)
        result.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(result.detach()))
    return Outcome((losses, state_of(loss)), lambda: compiled(seen).backward())

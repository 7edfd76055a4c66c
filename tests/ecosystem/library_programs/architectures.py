"""Libraries of architectures and flows: vit-pytorch, perceiver-pytorch, performer-pytorch, nflows, normflows."""

from __future__ import annotations

from typing import Any

import torch
from harness import Compiler, Outcome, program, size, trained

IMAGE = size(16, 64)
WIDTH = size(16, 64)


def _square(out: torch.Tensor) -> torch.Tensor:
    return out.square().mean()


class Likelihood(torch.nn.Module):
    """What a flow is trained with."""

    def __init__(self, flow: Any, loss_of: Any) -> None:
        super().__init__()
        self.flow, self.loss_of = flow, loss_of

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss_of(self.flow, x)


@program("vit-pytorch")
def vit_training(compiler: Compiler) -> Outcome:
    from vit_pytorch import ViT

    model = ViT(image_size=IMAGE, patch_size=4, num_classes=5, dim=WIDTH, depth=2, heads=2, mlp_dim=2 * WIDTH)
    return trained(compiler, model, lambda: (torch.randn(2, 3, IMAGE, IMAGE),), _square)


@program("perceiver-pytorch")
def perceiver_training(compiler: Compiler) -> Outcome:
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3, input_axis=2, num_freq_bands=2, max_freq=4.0, depth=2, num_latents=4, latent_dim=WIDTH,
        cross_heads=1, latent_heads=2, cross_dim_head=8, latent_dim_head=8, num_classes=5, weight_tie_layers=True,
        self_per_cross_attn=1,
    )  # fmt: skip
    return trained(compiler, model, lambda: (torch.randn(2, 6, 6, 3),), _square)


@program("nflows", recompiles=1)
def nflows_autoregressive(compiler: Compiler) -> Outcome:
    """Trained by its likelihood, then sampled from."""
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation

    transforms = [MaskedAffineAutoregressiveTransform(4, WIDTH), ReversePermutation(4)]
    flow = Flow(CompositeTransform(transforms), StandardNormal([4]))
    model = Likelihood(flow, lambda flow, x: -flow.log_prob(x).mean())
    outcome = trained(compiler, model, lambda: (torch.randn(8, 4),), torch.Tensor.mean)
    sampled = compiler(lambda: flow.sample(8))
    with torch.no_grad():
        return Outcome((outcome.results, sampled()), outcome.step)


@program("normflows")
def normflows_coupling(compiler: Compiler) -> Outcome:
    import normflows as nf

    flows = []
    for _ in range(3):
        network = nf.nets.MLP([1, WIDTH, 2], init_zeros=True)
        flows += [nf.flows.AffineCouplingBlock(network), nf.flows.Permute(2, mode="swap")]
    flow = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), flows)
    model = Likelihood(flow, lambda flow, x: flow.forward_kld(x))
    return trained(compiler, model, lambda: (torch.randn(10, 2),), lambda loss: loss)


@program("performer-pytorch")
def performer_training(compiler: Compiler) -> Outcome:
    """Linear attention over random features, which are buffers."""
    from performer_pytorch import Performer

    model = Performer(dim=WIDTH, depth=1, heads=2, dim_head=8, causal=False, nb_features=16)
    return trained(compiler, model, lambda: (torch.randn(2, 12, WIDTH),), _square)

"""Libraries of losses and of training: pytorch-crf, opacus, lightly, pytorch-msssim, auraloss, coral, torchjd."""

from __future__ import annotations

from typing import Any

import torch
from harness import Compiler, Outcome, program, size, state_of, trained

SAMPLES = size(512, 8192)


def _gradients(compiler: Compiler, loss_of: Any, x: torch.Tensor) -> Outcome:
    """A loss and its gradient, three times."""
    compiled = compiler(loss_of)
    results = []
    for _ in range(3):
        x = x.detach().requires_grad_()
        loss = compiled(x)
        loss.backward()
        results.append((loss.detach(), x.grad))
    return Outcome(results, lambda: compiled(x).backward())


@program("pytorch-crf")
def crf_tagging(compiler: Compiler) -> Outcome:
    """Sentences of several lengths, by their likelihood; what decodes them reads every tag as a number."""
    from torchcrf import CRF

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.crf = torch.nn.Linear(8, 5), CRF(5, batch_first=True)

        def forward(self, x: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return -self.crf(self.linear(x), tags, mask)

    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 5:] = False
    inputs = (torch.randn(3, 7, 8), torch.randint(0, 5, (3, 7)), mask)
    return trained(compiler, Tagger(), lambda: inputs, lambda loss: loss)


@program("opacus", breaks=7, recompiles=4)
def opacus_private_step(compiler: Compiler) -> Outcome:
    """Gradients of single samples, by hooks of each module; clipped without noise."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    compiled = compiler(GradSampleModule(net))
    optimizer = DPOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=6
    )
    x, y = torch.randn(6, 8), torch.arange(6) % 4

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Outcome(([step() for _ in range(3)], state_of(net)), step)


@program("lightly")
def lightly_simclr(compiler: Compiler) -> Outcome:
    """Two views of each image; a mask leaves out each view's similarity with itself."""
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead

    loss_of = NTXentLoss(temperature=0.5)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 16))
            self.head = SimCLRProjectionHead(16, 16, 8)

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return loss_of(self.head(self.backbone(one)), self.head(self.backbone(other)))

    return trained(compiler, Model(), lambda: (torch.randn(6, 3, 4, 4), torch.randn(6, 3, 4, 4)), lambda loss: loss)


@program("lightly")
def lightly_vicreg(compiler: Compiler) -> Outcome:
    from lightly.loss import BarlowTwinsLoss, VICRegLoss

    barlow, vicreg = BarlowTwinsLoss(), VICRegLoss()
    other = torch.randn(6, 8)
    return _gradients(compiler, lambda x: barlow(x, other) + vicreg(x, other), torch.randn(6, 8))


@program("pytorch-msssim")
def msssim(compiler: Compiler) -> Outcome:
    from pytorch_msssim import SSIM, ssim

    similarity = SSIM(data_range=1.0, size_average=True, channel=3, win_size=5)
    y = torch.rand(2, 3, 24, 24)
    return _gradients(
        compiler,
        lambda x: 1 - similarity(torch.sigmoid(x), y) + ssim(torch.sigmoid(x), y, data_range=1.0, win_size=3),
        torch.randn(2, 3, 24, 24),
    )


@program("auraloss")
def auraloss_spectrograms(compiler: Compiler) -> Outcome:
    import auraloss

    spectral = auraloss.freq.MultiResolutionSTFTLoss(fft_sizes=[64, 128], hop_sizes=[16, 32], win_lengths=[64, 128])
    ratio = auraloss.time.SISDRLoss()
    y = torch.randn(2, 1, SAMPLES)
    return _gradients(compiler, lambda x: spectral(x, y) + ratio(x, y), torch.randn(2, 1, SAMPLES))


@program("torchjd", breaks=1)
def torchjd_aggregation(compiler: Compiler) -> Outcome:
    """Jacobians are aggregated in compiled code; IMTL-G branches on a sum."""
    from torchjd.aggregation import IMTLG, Mean

    compiled = compiler(lambda jacobian: (Mean()(jacobian), IMTLG()(jacobian)))
    jacobian = torch.randn(3, 7)
    return Outcome((compiled(jacobian), compiled(jacobian * 2)), lambda: compiled(jacobian))

"""Libraries of one field each: medical images, tables, spikes, hyperbolic space, agents, pruning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import Compiler, Outcome, program, size, state_of


def _trained(
    model: torch.nn.Module, make: Callable[[], Any], loss_of: Callable[[Any], torch.Tensor], optimizer: Any = None
) -> Outcome:
    """Four steps, each with inputs of its own: losses, the last gradients, the parameters after them."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        inputs = make()
        optimizer.zero_grad()
        loss = loss_of(inputs)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    gradients = [p.grad for p in model.parameters()]
    return Outcome((losses, gradients, state_of(model)), lambda: loss_of(inputs).backward())


@program("monai")
def monai_sliding_window(compiler: Compiler) -> Outcome:
    """A network of fixed windows over a larger image."""
    from monai.inferers import sliding_window_inference
    from monai.networks.nets import SwinUNETR

    model = SwinUNETR(
        in_channels=1, out_channels=2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2)
    ).eval()
    compiled = compiler(model)
    x = torch.randn(1, 1, 80, 64)

    def step() -> Any:
        with torch.no_grad():
            return sliding_window_inference(x, (64, 64), 1, compiled)

    return Outcome((step(), step()), step)


@program("pytorch-tabnet", tolerance=5e-2)  # small batches are normalised: four steps multiply differences of rounding
def tabnet_training(compiler: Compiler) -> Outcome:
    """Its sparsemax is an autograd.Function that calls a static method of its own."""
    from pytorch_tabnet.tab_network import TabNet

    rows = size(16, 256)
    model = TabNet(8, 3, n_d=4, n_a=4, n_steps=2, virtual_batch_size=rows, group_attention_matrix=torch.eye(8))
    compiled = compiler(model)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        out, sparsity = compiled(x)
        return out.square().mean() - 1e-3 * sparsity

    return _trained(model, lambda: torch.randn(rows, 8), loss_of)


@program("snntorch", recompiles=1)  # the membranes are empty before the first call
def spiking_network(compiler: Compiler) -> Outcome:
    """Leaky neurons over time, with surrogate gradients."""
    import snntorch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.spikes = torch.nn.Linear(8, 16), snntorch.Leaky(beta=0.9)
            self.second, self.out = torch.nn.Linear(16, 3), snntorch.Leaky(beta=0.8, learn_beta=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner, outer = self.spikes.reset_mem(), self.out.reset_mem()
            found = []
            for at in range(x.shape[0]):
                spikes, inner = self.spikes(self.first(x[at]), inner)
                spikes, outer = self.out(self.second(spikes), outer)
                found.append(spikes + outer)
            return torch.stack(found)

    model = Net()
    compiled = compiler(model)
    return _trained(model, lambda: torch.randn(4, size(5, 64), 8), lambda x: compiled(x).square().mean())


@program("geoopt", breaks=1)  # the arctangent of a curvature branches on its values
def hyperbolic_embeddings(compiler: Compiler) -> Outcome:
    """Distances in the Poincaré ball, with the optimizer of its manifold."""
    import geoopt

    ball = geoopt.PoincareBall()

    class Distances(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.points = geoopt.ManifoldParameter(ball.random(10, 3, std=0.1), manifold=ball)

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return ball.dist(self.points[one], self.points[other])

    model = Distances()
    compiled = compiler(model)
    optimizer = geoopt.optim.RiemannianAdam(model.parameters(), lr=1e-2)
    return _trained(
        model, lambda: torch.randint(0, 10, (2, 6)), lambda pair: compiled(*pair).square().mean(), optimizer
    )


@program("stable-baselines3", "gymnasium")
def agent_policy(compiler: Compiler) -> Outcome:
    """What PPO computes of a policy at each step."""
    import gymnasium
    from stable_baselines3.common.policies import ActorCriticPolicy

    boxes = gymnasium.spaces.Box(-1, 1, (4,))
    policy = ActorCriticPolicy(boxes, gymnasium.spaces.Discrete(3), lambda _: 1e-3)
    evaluate = compiler(policy.evaluate_actions)

    def loss_of(inputs: Any) -> torch.Tensor:
        values, log_prob, entropy = evaluate(*inputs)
        return values.square().mean() - log_prob.mean() - 0.01 * entropy.mean()

    return _trained(policy, lambda: (torch.randn(6, 4), torch.randint(0, 3, (6,))), loss_of)


@program("stable-baselines3", "gymnasium")
def agent_actor_and_critic(compiler: Compiler) -> Outcome:
    """The actor's loss of SAC: actions are drawn, and judged by two critics."""
    import gymnasium
    from stable_baselines3.sac.policies import SACPolicy

    policy = SACPolicy(gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Box(-1, 1, (2,)), lambda _: 1e-3)

    def judged(x: torch.Tensor) -> torch.Tensor:
        actions, log_prob = policy.actor.action_log_prob(x)
        return torch.min(*policy.critic(x, actions)).mean() + log_prob.mean()

    compiled = compiler(judged)
    return _trained(policy, lambda: torch.randn(6, 4), compiled)


@program("local-attention")
def windowed_attention(compiler: Compiler) -> Outcome:
    """A language model whose attention looks at windows."""
    from local_attention import LocalTransformer

    model = LocalTransformer(
        num_tokens=50, dim=16, depth=2, max_seq_len=64, causal=True, local_attn_window_size=8, dim_head=8, heads=2
    )
    compiled = compiler(model)
    return _trained(model, lambda: torch.randint(0, 50, (2, 33)), lambda ids: compiled(ids, return_loss=True))


@program("torch-pruning", recompiles=1)
def pruned_channels(compiler: Compiler) -> Outcome:
    """Channels are cut out of a compiled network, which is called again."""
    import torch_pruning

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3), torch.nn.Flatten(), torch.nn.Linear(128, 2)
    )
    compiled = compiler(model)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        before = compiled(x)
    importance = torch_pruning.importance.MagnitudeImportance(p=1)
    pruner = torch_pruning.pruner.MagnitudePruner(
        model, x, importance=importance, pruning_ratio=0.5, ignored_layers=[model[4]]
    )
    pruner.step()
    return Outcome((before, compiled(x), state_of(model)), lambda: compiled(x))

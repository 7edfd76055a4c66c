"""Programs with idioms of torch's: scripted code, autograd functions, tensors made in old ways, packed sequences."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from captured.table import Made, Table, script, t
from torch import nn
from torch.autograd import Variable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

program = Table()


@script
def scripted_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


@script
def scripted_scale(x: torch.Tensor, factor: float, n: int = 2) -> torch.Tensor:
    for _ in range(n):
        x = x * factor
    return x


@script
def scripted_caller(x: torch.Tensor) -> torch.Tensor:
    return scripted_scale(x, 0.5) + scripted_gelu(x)


@program(train=True)
def script_function() -> Made:
    return lambda x: scripted_gelu(x) + 1, t().requires_grad_()


@program()
def script_function_with_defaults() -> Made:
    return lambda x: scripted_scale(x, 0.5) + scripted_scale(x, factor=2.0, n=3), t()


@program()
def script_function_that_calls_one() -> Made:
    return lambda x: scripted_caller(x) * 2, t()


class FusedGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return scripted_gelu(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.sigmoid(1.7 * x)


@program(train=True)
def script_function_in_an_autograd_function() -> Made:
    return lambda x: FusedGelu.apply(x) * 2, t().requires_grad_()


class ScriptedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.scale: float = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.linear(x)) * self.scale


class HoldsScripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = script(ScriptedBlock())
        self.norm = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.inner(x) + x)


@program(breaks=True, train=True)
def scripted_module_inside() -> Made:
    torch.manual_seed(0)
    return HoldsScripted(), t()


@program(graphs=2)
def jit_annotations() -> Made:
    def f(x: torch.Tensor) -> Any:
        out = torch.jit.annotate(list[torch.Tensor], [])
        for i in range(3):
            out.append(x * i)
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            return x
        assert torch.jit.isinstance(out, list[torch.Tensor])
        return torch.stack(out)

    return f, t()


@torch.jit.ignore
def ignored(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.jit.unused
def unused(x: torch.Tensor) -> torch.Tensor:
    return x + 2


@torch.jit.export
def exported(x: torch.Tensor) -> torch.Tensor:
    return x + 3


@program()
def jit_decorated_functions() -> Made:
    return lambda x: ignored(x) * unused(x) + exported(x), t()


@program()
def script_if_tracing() -> Made:
    @torch.jit.script_if_tracing
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    return lambda x: helper(x) + 1, t()


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad.neg() * ctx.factor, None


@program(train=True)
def gradient_reversal() -> Made:
    class Reversal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(Scale.apply(x, 0.3))

    torch.manual_seed(0)
    return Reversal(), t().requires_grad_()


@program(breaks=True, train=True)
def autograd_function_through_an_instance() -> Made:
    return lambda x: Scale().apply(x, 2.0) + 1, t().requires_grad_()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


@program(train=True)
def setup_context() -> Made:
    return lambda x: Square.apply(x).sum(0), t().requires_grad_()


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
        mask = x.abs() < 1
        ctx.save_for_backward(mask)
        codes = torch.round(x.clamp(-1, 1) * levels)
        ctx.mark_non_differentiable(codes)
        return codes / levels, codes

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad * mask, None


@program(train=True)
def straight_through_quantiser() -> Made:
    return lambda x: StraightThrough.apply(x, 4)[0] * 3, t().requires_grad_()


@program(train=True)
def quantiser_by_detach() -> Made:
    return lambda x: x + (x.round() - x).detach(), t().requires_grad_()


@program()
def variables() -> Made:
    def f(x: torch.Tensor) -> Any:
        h = Variable(torch.zeros(x.size(0), 3))
        return h + Variable(x.data[:, :3])

    return f, t()


@program()
def variable_of_new() -> Made:
    def f(x: torch.Tensor) -> Any:
        eps = Variable(x.data.new(x.size()).fill_(0.5))
        return eps.mul(x.exp()).add_(x)

    return f, t()


@program()
def variable_that_requires_grad() -> Made:
    def f(x: torch.Tensor) -> Any:
        mask = Variable(torch.ones(x.size(0), 1), requires_grad=False)
        return x * mask

    return f, t()


@program()
def new_zeros_by_weight() -> Made:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(6, 5)

        def init_hidden(self, size: int) -> torch.Tensor:
            weight = next(self.parameters()).data
            return Variable(weight.new(size, 5).zero_())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.init_hidden(x.size(0))
            for _ in range(2):
                h = self.cell(x, h)
            return h

    torch.manual_seed(0)
    return Recurrent(), t()


@program()
def tensor_constructor_of_list() -> Made:
    return lambda x: x * torch.Tensor([1.0, 2, 3, 4, 5, 6]) + torch.LongTensor([1, 2, 3, 4, 5, 6]), t()


@program()
def float_tensor_constructor() -> Made:
    return lambda x: x + torch.FloatTensor([[0.5], [1.0], [2.0], [3.0]]), t()


@program()
def tensor_constructor_of_sizes() -> Made:
    def f(x: torch.Tensor) -> Any:
        out = torch.Tensor(x.size(0), 3).fill_(2.0)
        ids = torch.LongTensor(x.size(0)).zero_()
        return out + ids[:, None] + torch.zeros(1).type_as(x)

    return f, t()


@program()
def tensor_constructor_of_array() -> Made:
    import numpy as np

    def f(x: torch.Tensor) -> Any:
        return x * torch.FloatTensor(np.arange(6, dtype=np.float32)) + torch.from_numpy(np.ones(6, np.float32))

    return f, t()


@program()
def cuda_guards() -> Made:
    def f(x: torch.Tensor) -> Any:
        mask = torch.ones_like(x)
        if torch.cuda.is_available():
            mask = mask.cuda()
        if x.is_cuda:
            mask = mask.cuda(x.get_device())
        maker = torch.cuda.FloatTensor if x.is_cuda else torch.FloatTensor
        device = torch.device("cuda") if x.is_cuda else torch.device("cpu")
        return x * mask.to(device) + maker([0.5]), x.type() == "torch.FloatTensor"

    return f, t()


@program()
def types_by_name() -> Made:
    return lambda x: x.type(torch.LongTensor).type("torch.FloatTensor").type(torch.float64) * 2, t()


@program(train=True)
def packed_sequence_lstm() -> Made:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(6, 5, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, (h, _) = self.rnn(packed)
            out, _ = pad_packed_sequence(out, batch_first=True)
            return out.sum() + h

    torch.manual_seed(0)
    return Encoder(), t(3, 4, 6), torch.tensor([4, 2, 3])


@program()
def pad_of_sequences() -> Made:
    return lambda x: pad_sequence([x[:2], x[:3], x], batch_first=True, padding_value=-1.0), t()


@program()
def parameter_made_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        weight = nn.Parameter(torch.ones(6, 3), requires_grad=False)
        return x @ weight

    return f, t()


@program(train=True)
def old_upsampling() -> Made:
    def f(x: torch.Tensor) -> Any:
        y = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        return F.adaptive_avg_pool2d(torch.sigmoid(y), 1) + x.mean()

    return f, t(1, 2, 4, 4).requires_grad_()


@program(breaks=True)
def manual_seed_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        torch.manual_seed(3)
        return x + torch.rand(4, 6)

    return f, t()


@program(breaks=True)
def generator_from_outside() -> Made:
    def f(x: torch.Tensor) -> Any:
        torch.manual_seed(1)
        return F.dropout(x, 0.5, training=True) + torch.randn_like(x)

    return f, t()


@program(graphs=2)
def forward_hooks() -> Made:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    seen: list[torch.Tensor] = []
    module[0].register_forward_hook(lambda m, i, o: seen.append(o.detach()))
    module[1].register_forward_pre_hook(lambda m, i: (i[0] * 2,))

    def f(x: torch.Tensor) -> Any:
        seen.clear()
        out = module(x)
        return out, seen[0]

    return f, t()


@program(train=True)
def hook_on_a_tensor() -> Made:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        y.register_hook(lambda grad: grad * 0.5)
        return y.sum()

    return f, t().requires_grad_()


@program()
def requires_grad_of_a_result() -> Made:
    def f(x: torch.Tensor) -> Any:
        y = x.detach().clone()
        y.requires_grad_(True)
        return (y * 2).requires_grad, y * 3

    return f, t()


@program()
def gradient_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        with torch.enable_grad():
            y = x.detach().requires_grad_(True)
            (grad,) = torch.autograd.grad((y**2).sum(), y, create_graph=False)
        return grad

    return f, t()


@program(graphs=2, breaks=True)  # at first: then it says what is already so
def frozen_parameters() -> Made:
    torch.manual_seed(0)
    module = nn.Linear(6, 6)

    def f(x: torch.Tensor) -> Any:
        for p in module.parameters():
            p.requires_grad = False
        return module(x)

    return f, t()


@program()
def gradients_of_parameters_read() -> Made:
    torch.manual_seed(0)
    module = nn.Linear(6, 6)
    module(t()).sum().backward()

    def f(x: torch.Tensor) -> Any:
        return sum(p.grad.norm() for p in module.parameters() if p.grad is not None) + x

    return f, t()


@program()
def moving_average_of_weights() -> Made:
    torch.manual_seed(0)
    student, teacher = nn.Linear(6, 6), nn.Linear(6, 6)

    def f(x: torch.Tensor) -> Any:
        with torch.no_grad():
            for p, q in zip(student.parameters(), teacher.parameters(), strict=True):
                q.data.mul_(0.9).add_(p.data, alpha=0.1)
        return teacher(x)

    return f, t()


@program()
def state_dict_inside() -> Made:
    torch.manual_seed(0)
    module = nn.Linear(6, 6)

    def f(x: torch.Tensor) -> Any:
        weights = module.state_dict()
        return F.linear(x, weights["weight"] * 2, weights["bias"])

    return f, t()


@program(train=True)
def spectral_norm() -> Made:
    torch.manual_seed(0)
    return nn.utils.spectral_norm(nn.Linear(6, 6)), t()


@program(train=True)
def weight_norm() -> Made:
    torch.manual_seed(0)
    return nn.utils.weight_norm(nn.Linear(6, 6)), t()


@program(train=True)
def weight_norm_parametrised() -> Made:
    torch.manual_seed(0)
    return nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), t()


@program(breaks=True)
def is_leaf_and_grad_fn() -> Made:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return y if y.grad_fn is None and y.is_leaf else y + 1

    return f, t()


@program(graphs=2)
def storage_of_results() -> Made:
    return lambda x: (x * 2, (x + 1).element_size() * x.nelement(), x.storage_offset(), x.t().is_contiguous()), t()


@program()
def distributions() -> Made:
    def f(x: torch.Tensor) -> Any:
        normal = torch.distributions.Normal(x, torch.ones_like(x), validate_args=False)
        return normal.log_prob(x + 1).sum() + normal.entropy().mean()

    return f, t()


@program()
def categorical_distribution() -> Made:
    def f(x: torch.Tensor, a: torch.Tensor) -> Any:
        chosen = torch.distributions.Categorical(logits=x)
        return chosen.log_prob(a) + chosen.entropy()

    return f, t(), torch.tensor([1, 2, 0, 5])


@program()
def kl_of_distributions() -> Made:
    def f(x: torch.Tensor) -> Any:
        a = torch.distributions.Normal(x, x.exp())
        b = torch.distributions.Normal(torch.zeros_like(x), torch.ones_like(x))
        return torch.distributions.kl_divergence(a, b).sum(-1)

    return f, t()


class Tagged(torch.Tensor):
    """A subclass by ``__torch_function__`` alone."""


@program()
def subclass_by_torch_function() -> Made:
    return lambda x: x * 2 + 1, t().as_subclass(Tagged)


@program(graphs=0)
def sparse_through() -> Made:
    return lambda a, x: torch.sparse.mm(a, x) + 1, torch.eye(4).to_sparse(), t()


@program()
def tensor_of_tensors() -> Made:
    def f(x: torch.Tensor) -> Any:
        return torch.tensor([x.shape[0], 2.5]) + torch.as_tensor(x.shape[1]) + torch.tensor(3, dtype=x.dtype)

    return f, t()


@program()
def modules_in_a_loop_with_index() -> Made:
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def f(x: torch.Tensor) -> Any:
        outs = {}
        for i, layer in enumerate(layers):
            x = layer(x) + x
            outs[f"layer{i}"] = x
        return outs

    return f, t()

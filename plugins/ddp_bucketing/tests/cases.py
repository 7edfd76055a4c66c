"""What several ranks do together. One process per rank runs all cases of a world: python cases.py RESULTS.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are as torchrun sets them. A case is a function of a ``World``; what it
raises is its result, and ``test_ranks.py`` shows it.
"""

import contextlib
import copy
import itertools
import json
import os
import sys
import time
import traceback
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import jitney
from jitney_ddp_bucketing import wrapped

CASES = {}
MODES = ("split", "in_graph")
CAP = 0.0008  # MiB: some buckets even for tiny models


def case(name, worlds=(2,), **arguments):
    def add(function):
        CASES[name] = (function, worlds, arguments)
        return function

    return add


def cases_for(world):
    return [name for name, (_, worlds, _) in CASES.items() if world in worlds]


# ------------------------------------------------------------------ models


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.c(torch.tanh(self.b(F.relu(self.a(x)))))


class Later(MLP):
    """Five rows break its graph."""

    def forward(self, x):
        y = F.relu(self.a(x))
        if x.shape[0] == 5:
            jitney.graph_break()
        return self.c(torch.tanh(self.b(y)))


class CNN(nn.Module):
    """Batch norm has buffers, which DDP broadcasts; channels_last weights are not contiguous."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 4)
        self.two.to(memory_format=torch.channels_last)

    def forward(self, x):
        x = F.relu(self.norm(self.one(x)), inplace=True)
        return self.head(F.relu(self.two(x)).mean((2, 3)))


class Tied(nn.Module):
    """A weight that two pieces use, a parameter used twice, one larger than a bucket, one that does not train."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.twice, self.big = nn.Linear(8, 8), nn.Linear(8, 8 * 40)
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        y = self.twice(self.words(x) * self.frozen)
        y = y + self.big(self.twice(y)).view(*y.shape, 40).mean(-1)
        return y @ self.words.weight.t()


class Unused(MLP):
    """Has a part that its forward leaves out."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(16, 16)


class Broken(MLP):
    """Two graphs."""

    def forward(self, x):
        y = F.relu(self.a(x))
        jitney.graph_break()
        return self.c(torch.tanh(self.b(y)))


class Branching(MLP):
    """Another operation on rank 1, and the same parameters."""

    def forward(self, x):
        y = F.relu(self.a(x)) if dist.get_rank() == 0 else F.gelu(self.a(x))
        return self.c(torch.tanh(self.b(y)))


class Words(nn.Module):
    """As GPT-2: an embedding, larger than all else, that input and output share."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        y = self.words(x)
        for layer in self.layers:
            y = y + F.gelu(layer(self.norm(y)))
        return y @ self.words.weight.t()


class Several(MLP):
    """Several outputs, some of which a loss leaves out."""

    def forward(self, x):
        y = F.relu(self.a(x))
        return {"out": self.c(torch.tanh(self.b(y))), "more": [y, self.b(y)]}


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False)


def floats(*shape):
    return lambda n: (torch.randn(n, *shape),)


def words(n):
    return (torch.randint(40, (n, 5)),)


MODELS = {"mlp": (MLP, floats(6)), "cnn": (CNN, floats(3, 8, 8)), "bert": (bert, words), "tied": (Tied, words)}


# ------------------------------------------------------------------ training


class World:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def compiled(self, model, mode, order=1, backend="aot_eager", ddp=None, **options):
        """The model in DDP, compiled, in one of the two orders."""
        given = {"ddp": mode, "bucket_cap_mb": CAP, **options}
        if order == 1:
            return jitney.compile(DDP(model, **(ddp or {})), backend=backend, options=given)
        return DDP(jitney.compile(model, backend=backend, options=given), **(ddp or {}))

    def train(self, model, inputs, wrap, steps=10, step=None, sizes=None):
        """Train a copy of the model; its parameters and buffers afterwards."""
        model = copy.deepcopy(model)
        ddp = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(7 + self.rank)
        for number in range(steps):
            given = inputs(sizes[number] if sizes else 4)
            if step is None:
                optimizer.zero_grad()
                loss_of(ddp(*given)).backward()
                optimizer.step()
            elif step(ddp, optimizer, given, number) is not False:
                optimizer.step()
        return [p.detach().clone() for p in (*model.parameters(), *model.buffers())], [*model.parameters()]

    def same_as_eager(self, make, inputs, wraps, ddp=None, tolerance=1e-5, **how):
        """Trained through each wrap as uncompiled; parameters are bit-equal on all ranks."""
        torch.manual_seed(0)
        model = make()
        expected, _ = self.train(model, inputs, lambda m: DDP(m, **(ddp or {})), **how)
        for wrap in wraps:
            found, parameters = self.train(model, inputs, wrap, **how)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
            self.check_equal_on_ranks(parameters)

    def check_equal_on_ranks(self, tensors):
        mine = torch.cat([t.detach().reshape(-1).double() for t in tensors])
        all_of_them = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(all_of_them, mine)
        assert all(torch.equal(other, mine) for other in all_of_them), "parameters differ between ranks"


def loss_of(output):
    output = getattr(output, "last_hidden_state", output)
    if isinstance(output, dict):
        output = output["out"]
    return (output.float() ** 2).mean() + output.float().sin().mean()


class Counted:
    """How often gradients were reduced after a backward instead of in it."""

    def __enter__(self):
        self.count, self.before = 0, wrapped.State.reduce_at_end
        wrapped.State.reduce_at_end = self
        return self

    def __get__(self, state, kind):
        def reduce_at_end(step):
            self.count += 1
            return self.before(state, step)

        return reduce_at_end

    def __exit__(self, *error):
        wrapped.State.reduce_at_end = self.before


def state_of(module):
    return wrapped._states[getattr(module, "_jitney_original", module)]


# ------------------------------------------------------------------ whole steps


class Whole:
    """A step as one graph: batches of one rank, in as many parts as gradients are accumulated over."""

    def __init__(self, make, inputs, parts, world):
        torch.manual_seed(world.rank)  # DDP has all ranks begin with the first one's parameters
        self.ddp = DDP(make(), bucket_cap_mb=CAP)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), 0.05, momentum=0.9)
        self.inputs, self.parts = inputs, parts

    def step(self, *batches):
        self.optimizer.zero_grad()
        for at, given in enumerate(batches):
            with self.ddp.no_sync() if at < len(batches) - 1 else contextlib.nullcontext():
                (loss_of(self.ddp(*given)) / len(batches)).backward()
        nn.utils.clip_grad_norm_(self.ddp.parameters(), 0.1)
        self.optimizer.step()

    def trained(self, wrap, world):
        step = wrap(self.step)
        for _ in range(6):
            step(*[self.inputs(4) for _ in range(self.parts)])
        return [*self.ddp.parameters()], [p.grad for p in self.ddp.parameters()], [*self.ddp.buffers()]


for _backend, _tolerance in (("aot_eager", 0.0), ("llvm_cpu", 1e-5)):
    for _parts in (1, 3):

        @case(f"whole_step_of_{_parts}_{_backend}")
        def whole_step(world, backend=_backend, tolerance=_tolerance, parts=_parts):
            for make, inputs in ((MLP, floats(6)), (CNN, floats(3, 8, 8))):
                wanted = Whole(make, inputs, parts, world).trained(lambda step: step, world)
                whole = Whole(make, inputs, parts, world)
                found = whole.trained(lambda step: jitney.compile(step, backend=backend, fullgraph=True), world)
                torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
                world.check_equal_on_ranks(found[0])


# ------------------------------------------------------------------ the same as uncompiled DDP


for _name, (_make, _inputs) in MODELS.items():
    for _mode in MODES:

        @case(f"{_name}_{_mode}", worlds=(2, 4) if _name in ("mlp", "bert", "cnn") else (2,))
        def trains_as_eager(world, make=_make, inputs=_inputs, mode=_mode):
            states = []

            def wrap(order):
                def wrapped_in(model):
                    cap = 0.01 if make is bert else CAP  # or it would be compiled in dozens of pieces
                    states.append(world.compiled(model, mode, order, bucket_cap_mb=cap))
                    return states[-1]

                return wrapped_in

            with Counted() as late:
                world.same_as_eager(make, inputs, [wrap(1), wrap(2)])
            assert late.count == 0
            assert [state_of(s).agreed for s in states] == [True if mode == "in_graph" else None] * 2


@case("llvm_cpu")
def kernels(world):
    wraps = [lambda m, mode=mode: world.compiled(m, mode, backend="llvm_cpu") for mode in MODES]
    world.same_as_eager(MLP, floats(6), wraps)
    world.same_as_eager(CNN, floats(3, 8, 8), wraps)
    world.same_as_eager(Words, words, wraps, steps=4)


@case("torch_level_backend")
def torch_level(world):
    """A backend without ATen graphs: its graphs are cut, in both modes."""
    made = []
    wraps = [lambda m, mode=mode: made.append(world.compiled(m, mode, backend="eager")) or made[-1] for mode in MODES]
    world.same_as_eager(MLP, floats(6), wraps)
    assert "takes graphs without their backward" in state_of(made[1]).why_not


@case("no_sync", worlds=(2, 4))
def no_sync(world):
    def step(ddp, optimizer, given, number):
        if number % 3 == 0:
            optimizer.zero_grad()
        if number % 3 == 2:
            loss_of(ddp(*given)).backward()
            return True
        with ddp.no_sync():
            loss_of(ddp(*given)).backward()
        return False  # nothing to step with yet

    for mode in MODES:
        wraps = [lambda m, order=order: world.compiled(m, mode, order) for order in (1, 2)]
        world.same_as_eager(MLP, floats(6), wraps, step=step, steps=9)


@case("join", worlds=(2, 4))
def uneven_batches_with_join(world):
    """Ranks have different numbers of batches, and of rows in the last one."""

    def train(wrap):
        torch.manual_seed(0)
        model = MLP()
        ddp = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(7 + world.rank)
        for n in (4, 4):
            optimizer.zero_grad()
            loss_of(ddp(torch.randn(n, 6))).backward()
            optimizer.step()
        with Join([ddp]):
            for n in [4] * (2 + world.rank) + [3]:
                optimizer.zero_grad()
                loss_of(ddp(torch.randn(n, 6))).backward()
                optimizer.step()
        return [p.detach() for p in model.parameters()]

    expected = train(DDP)
    for mode in MODES:
        for order in (1, 2):
            found = train(lambda m: world.compiled(m, mode, order))
            torch.testing.assert_close(found, expected)
            world.check_equal_on_ranks(found)


@case("uneven_rows")
def rows_differ_between_ranks(world):
    """One rank compiles again, and the others do not: no collective of ours may wait for them."""
    sizes = [4, 4, 4 + world.rank, 4, 3 if world.rank else 4, 4, 2 + world.rank]
    wraps = [lambda m, mode=mode, o=o: world.compiled(m, mode, o) for mode in MODES for o in (1, 2)]
    world.same_as_eager(MLP, floats(6), wraps, steps=len(sizes), sizes=sizes)


@case("communication_hook", worlds=(2, 4))
def communication_hook(world):
    def hooked(ddp):
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return ddp

    def compiled(model, mode, order):
        if order == 2:
            return hooked(world.compiled(model, mode, order))
        inner = hooked(DDP(model))
        return jitney.compile(inner, backend="aot_eager", options={"ddp": mode, "bucket_cap_mb": CAP})

    torch.manual_seed(0)
    model = MLP()
    expected, _ = world.train(model, floats(6), lambda m: hooked(DDP(m)))
    plain, _ = world.train(model, floats(6), DDP)
    assert any(not torch.equal(a, b) for a, b in zip(expected, plain)), "the hook does nothing"
    for mode, order in itertools.product(MODES, (1, 2)):
        found, parameters = world.train(model, floats(6), lambda m: compiled(m, mode, order))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)  # half floats, summed up in other buckets
        world.check_equal_on_ranks(parameters)
    late = world.compiled(copy.deepcopy(model), "in_graph")  # registered when the mode has been agreed on
    loss_of(late(torch.ones(4, 6))).backward()
    calls = []
    late.register_comm_hook(calls, lambda state, bucket: state.append(1) or default_hooks.allreduce_hook(None, bucket))
    late.zero_grad()
    loss_of(late(torch.ones(4, 6))).backward()
    assert calls
    builtin = world.compiled(copy.deepcopy(model), "in_graph")  # one of torch's own in C++, also late
    loss_of(builtin(torch.ones(4, 6))).backward()
    builtin._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    builtin.zero_grad()
    loss_of(builtin(torch.randn(4, 6))).backward()
    assert all(torch.equal(p.grad, p.grad.half().float()) for p in builtin.parameters())


@case("power_sgd")
def power_sgd(world):
    """A hook with state of its own, which compresses from the third step on."""

    def wrap(model, around):
        ddp = DDP(model)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return around(ddp)

    torch.manual_seed(0)
    model = MLP()
    expected, _ = world.train(model, floats(6), lambda m: wrap(m, lambda ddp: ddp), steps=6)
    for mode in MODES:
        options = {"ddp": mode, "bucket_cap_mb": CAP}
        compiled = lambda ddp: jitney.compile(ddp, backend="aot_eager", options=options)  # noqa: B023
        found, parameters = world.train(model, floats(6), lambda m: wrap(m, compiled), steps=6)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
        world.check_equal_on_ranks(parameters)


@case("unused_parameters", worlds=(2, 4))
def unused(world):
    ddp = {"find_unused_parameters": True}
    wraps = [lambda m, mode=mode, o=o: world.compiled(m, mode, o, ddp=ddp) for mode in MODES for o in (1, 2)]
    world.same_as_eager(Unused, floats(6), wraps, ddp=ddp)
    torch.manual_seed(0)
    compiled = world.compiled(Unused(), "in_graph")  # without: the same error as uncompiled
    try:
        for _ in range(3):
            loss_of(compiled(torch.ones(4, 6))).backward()
            assert "spare" in state_of(compiled).why_not
    except RuntimeError as error:
        assert "Expected to have finished reduction" in str(error)
    else:
        raise AssertionError("no error for parameters without gradients")


@case("ddp_arguments")
def arguments(world):
    for ddp in (
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
        {"broadcast_buffers": False, "bucket_cap_mb": 1},
        {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            wraps = [lambda m, mode=mode: world.compiled(m, mode, ddp=ddp) for mode in MODES]
            world.same_as_eager(CNN, floats(3, 8, 8), wraps, ddp=ddp, steps=4)


@case("autocast")
def autocast(world):
    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = ddp(*given)
        loss_of(out).backward()

    wraps = [lambda m, mode=mode: world.compiled(m, mode) for mode in MODES]
    world.same_as_eager(MLP, floats(6), wraps, step=step, tolerance=1e-2)


# ------------------------------------------------------------------ steps that are not clean


@case("gradients_from_before")
def gradients_from_before(world):
    """Accumulated over synchronised steps, or zeroed in place: what is there is reduced too, as DDP does."""

    def accumulate(ddp, optimizer, given, number):
        if number % 2 == 0:
            optimizer.zero_grad(set_to_none=number % 4 == 0)
        loss_of(ddp(*given)).backward()

    def local(ddp, optimizer, given, number):
        optimizer.zero_grad()
        for p in ddp.parameters():
            p.grad = torch.full_like(p, 0.1 * (1 + dist.get_rank()))
        loss_of(ddp(*given)).backward()

    def between(ddp, optimizer, given, number):
        optimizer.zero_grad()
        out = ddp(*given)
        for p in ddp.parameters():
            p.grad = torch.full_like(p, 0.1 * (1 + dist.get_rank()))
        loss_of(out).backward()

    for step in (accumulate, local, between):
        with Counted() as late:
            world.same_as_eager(MLP, floats(6), [lambda m: world.compiled(m, "in_graph")], step=step)
        assert late.count


@case("two_forwards")
def two_forwards(world):
    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        first, second = ddp(*given), ddp(given[0] + 1)
        (loss_of(first) + loss_of(second)).backward()

    wraps = [lambda m, mode=mode, o=o: world.compiled(m, mode, o) for mode in MODES for o in (1, 2)]
    world.same_as_eager(MLP, floats(6), wraps, step=step)


@case("forward_without_backward")
def forward_only(world):
    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        if number % 3 != 2:
            ddp(given[0] * 2)
        with torch.no_grad():
            ddp(given[0])
        loss_of(ddp(*given)).backward()

    wraps = [lambda m, mode=mode, o=o: world.compiled(m, mode, o) for mode in MODES for o in (1, 2)]
    world.same_as_eager(MLP, floats(6), wraps, step=step)


@case("hooks_on_parameters")
def parameter_hooks(world):
    """A hook sees this rank's gradient, before it is reduced."""

    def wrap(model, around):
        for p in model.parameters():
            p.register_hook(lambda g: g.clamp(-0.02, 0.02))
        return around(model)

    around = [lambda m, mode=mode: wrap(m, lambda n: world.compiled(n, mode)) for mode in MODES]
    torch.manual_seed(0)
    model = MLP()
    expected, _ = world.train(model, floats(6), lambda m: wrap(m, DDP))
    for one in around:
        found, parameters = world.train(model, floats(6), one)
        torch.testing.assert_close(found, expected)
        world.check_equal_on_ranks(parameters)


@case("gradients_of_one_rank")
def gradients_of_one_rank(world):
    """torch.autograd.grad reduces nothing, as in eager, and one rank may ask for it alone."""

    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        x = given[0].requires_grad_()
        out = ddp(x)
        local = [x, ddp.module.b.weight] if number % 2 else [x]
        if number and world.rank == 0:
            own = torch.autograd.grad(loss_of(out), local, retain_graph=True)
            expected = torch.autograd.grad(loss_of(MLP.forward(ddp.module, x)), local)
            torch.testing.assert_close(own, expected)
        loss_of(out).backward()

    wraps = [lambda m, mode=mode: world.compiled(m, mode) for mode in MODES]
    world.same_as_eager(MLP, floats(6), wraps, step=step, steps=5)


@case("no_sync_in_the_same_backward")
def no_sync_in_the_same_backward(world):
    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        if number == 2:
            first = ddp(*given)
        with ddp.no_sync():
            second = ddp(given[0] + 1)
        if number != 2:
            first = ddp(*given)
        (loss_of(first) + loss_of(second)).backward()

    wraps = [lambda m, mode=mode: world.compiled(m, mode) for mode in MODES]
    world.same_as_eager(MLP, floats(6), wraps, step=step, steps=4)


@case("interrupted_forward")
def interrupted_forward(world):
    """Ctrl-C in a forward does not leave the module as if in ``no_sync``."""

    class Stopped(MLP):
        def forward(self, x):
            if x.shape[0] == 5:
                stop()
            return super().forward(x)

    @jitney.disable
    def stop():
        raise KeyboardInterrupt

    def step(ddp, optimizer, given, number):
        if number in (1, 3):
            try:
                ddp(torch.ones(5, 6))
            except KeyboardInterrupt:
                pass
            if number == 3:  # what was interrupted is not what no_sync restores
                with ddp.no_sync():
                    loss_of(ddp(*given)).backward()
        optimizer.zero_grad()
        loss_of(ddp(*given)).backward()

    torch.manual_seed(0)
    model = Stopped()
    expected, _ = world.train(model, floats(6), DDP, steps=5, step=lambda d, o, g, n: step(d, o, g, 0))
    for order in (1, 2):
        found, _ = world.train(model, floats(6), lambda m: world.compiled(m, "in_graph", order), steps=5, step=step)
        torch.testing.assert_close(found, expected)


@case("two_modules")
def two_modules(world):
    """In one backward, one of them broken by a graph break on one rank alone: collectives keep their order."""

    class Both(nn.ModuleList):
        def forward(self, x):
            return loss_of(self[0](x[:4])) + loss_of(self[1](x))

    def wrap(model, around):
        return Both([around(model[0]), around(model[1])])

    sizes = [4, 4, 5 if world.rank else 4, 4]
    torch.manual_seed(0)
    model = Both([MLP(), Later()])
    expected, _ = world.train(model, floats(6), lambda m: wrap(m, DDP), steps=4, sizes=sizes)
    for mode in MODES:
        around = lambda m: world.compiled(m, mode)  # noqa: B023
        found, parameters = world.train(model, floats(6), lambda m: wrap(m, around), steps=4, sizes=sizes)
        torch.testing.assert_close(found, expected)
        world.check_equal_on_ranks(parameters)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = MLP(), MLP()

    def forward(self, x):
        return self.one(x), self.two(x)


@case("two_backwards")
def two_backwards(world):
    """Of two outputs that share no parameters: reduced in mode in_graph, a warning elsewhere."""

    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        one, two = ddp(*given)
        loss_of(one).backward(retain_graph=True)
        loss_of(two).backward()

    world.same_as_eager(Towers, floats(6), [lambda m: world.compiled(m, "in_graph")], step=step, steps=3)
    for mode in ("split", "off"):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            wrap = lambda m: world.compiled(m, mode, bucket_cap_mb=25)  # noqa: B023, E731
            world.train(Towers(), floats(6), wrap, step=step, steps=2)
        assert [str(w.message).partition(":")[0] for w in seen] == ["a second backward of one forward of a DDP module"]


@case("frozen_later")
def frozen_later(world):
    """A parameter that stops training, and trains again."""

    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        if number in (2, 4):
            ddp.module.b.requires_grad_(number == 4)
        loss_of(ddp(*given)).backward()

    ddp = {"find_unused_parameters": True}  # eager DDP asks for it
    wraps = [lambda m: world.compiled(m, "split", ddp=ddp), lambda m: world.compiled(m, "in_graph")]
    world.same_as_eager(MLP, floats(6), wraps, ddp=ddp, step=step, steps=6)


@case("dtypes")
def dtypes(world):
    """Gradients of several dtypes are not in one bucket."""

    class Mixed(MLP):
        def __init__(self):
            super().__init__()
            self.b.double()
            self.c.bfloat16()

        def forward(self, x):
            y = torch.tanh(self.b(F.relu(self.a(x)).double()))
            return self.c(y.bfloat16())

    wraps = [lambda m, mode=mode: world.compiled(m, mode, bucket_cap_mb=25) for mode in MODES]
    world.same_as_eager(Mixed, floats(6), wraps, steps=3, tolerance=1e-2)


@case("inside_a_module")
def inside_a_module(world):
    """Mode in_graph, where DDP's own forward is interpreted."""

    class Outer(nn.Module):
        def __init__(self, ddp):
            super().__init__()
            self.ddp = ddp

        def forward(self, x):
            return self.ddp(x * 1.0) + 0.0

    options = {"ddp": "in_graph", "bucket_cap_mb": CAP}
    wrap = lambda m: jitney.compile(Outer(DDP(m)), backend="aot_eager", options=options)  # noqa: E731
    world.same_as_eager(MLP, floats(6), [wrap], steps=4)


@case("large_embedding", worlds=(2, 4))
def large_embedding(world):
    """What is ready sooner does not wait for it."""

    made = []
    with Counted() as late:
        wrap = lambda m: made.append(world.compiled(m, "in_graph")) or made[-1]  # noqa: E731
        world.same_as_eager(Words, words, [wrap], steps=4)
    assert late.count == 0
    state = state_of(made[0])
    order = [[state.names[i] for i in bucket] for bucket in state.buckets]
    assert order[-1] == ["words.weight"] and len(order) > 2, order


@case("subgroups", worlds=(4,))
def subgroups(world):
    """Two process groups, each with a model of its own."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    ddp = {"process_group": groups[world.rank % 2]}
    for mode in MODES:
        torch.manual_seed(world.rank % 2)
        model = MLP()
        expected, _ = world.train(model, floats(6), lambda m: DDP(m, **ddp), steps=3)
        found, _ = world.train(model, floats(6), lambda m: world.compiled(m, mode, ddp=ddp), steps=3)  # noqa: B023
        torch.testing.assert_close(found, expected)


@case("outputs_left_out")
def outputs_left_out(world):
    wraps = [lambda m, mode=mode, o=o: world.compiled(m, mode, o) for mode in MODES for o in (1, 2)]
    world.same_as_eager(Several, floats(6), wraps)


class Opaque:
    def __init__(self, value):
        self.value = value


class Boxed(MLP):
    """Returns an object in which nobody finds tensors; two graphs from the second call on."""

    def forward(self, x):
        y = F.relu(self.a(x))
        if x.shape[0] == 5:
            jitney.graph_break()
        return Opaque(self.c(torch.tanh(self.b(y))))


@case("opaque_outputs")
def opaque_outputs(world):
    """With one graph its backward tells when to reduce; with two nothing does, which is an error."""

    def step(ddp, optimizer, given, number):
        optimizer.zero_grad(set_to_none=number != 2)
        loss_of(ddp(*given).value).backward()

    world.same_as_eager(Boxed, floats(6), [lambda m: world.compiled(m, "in_graph")], step=step, steps=4)
    compiled = world.compiled(Boxed(), "in_graph")
    loss_of(compiled(torch.ones(4, 6)).value).backward()
    try:
        compiled(torch.ones(5, 6))
    except jitney.errors.JitneyError as error:
        assert "a Opaque that the module returns" in str(error), error
    else:
        raise AssertionError("tensors in an unknown object went unnoticed")


@case("breaks_later")
def breaks_later(world):
    """Another size breaks the graph, on one rank and not on the others: the collectives meet all the same."""

    sizes = [4, 4, 5 if world.rank else 4, 4, 5, 4]
    with Counted() as late:
        wraps = [lambda m, o=o: world.compiled(m, "in_graph", o) for o in (1, 2)]
        world.same_as_eager(Later, floats(6), wraps, steps=len(sizes), sizes=sizes)
    assert late.count


@case("graph_breaks")
def graph_breaks(world):
    made = []
    wraps = [
        lambda m, mode=mode, o=o: made.append(world.compiled(m, mode, o)) or made[-1] for mode in MODES for o in (1, 2)
    ]
    world.same_as_eager(Broken, floats(6), wraps)
    assert "more than one graph" in state_of(made[2]).why_not


@case("used_outside")
def used_outside(world):
    """A parameter that the loss reads beside DDP's forward: reduced in mode split, an error in mode in_graph."""

    def step(ddp, optimizer, given, number):
        optimizer.zero_grad()
        (loss_of(ddp(*given)) + (ddp.module.b.weight * (1 + dist.get_rank())).square().sum()).backward()

    world.same_as_eager(MLP, floats(6), [lambda m: world.compiled(m, "split")], step=step)
    try:
        world.same_as_eager(MLP, floats(6), [lambda m: world.compiled(m, "in_graph")], step=step)
    except jitney.errors.JitneyError as error:
        assert "gradients of b.weight came from elsewhere" in str(error), error
    else:
        raise AssertionError("a gradient that was not reduced went unnoticed")


@case("inside_a_function")
def inside_a_function(world):
    """A compiled function that calls a DDP module."""

    def wrap(model):
        ddp = DDP(model)
        options = {"bucket_cap_mb": CAP}
        call = jitney.compile(lambda x: ddp(x * 1.0) + 0.0, backend="aot_eager", options=options)
        call.parameters = model.parameters
        return call

    world.same_as_eager(MLP, floats(6), [wrap], steps=5)


@case("copies")
def copies(world):
    """A copy of a compiled DDP module is compiled, and reduces on its own."""
    import pickle

    torch.manual_seed(0)
    compiled = world.compiled(MLP(), "in_graph")
    loss_of(compiled(torch.ones(4, 6) + world.rank)).backward()
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded._orig_mod) is DDP
    for other in (copy.deepcopy(compiled), loaded):
        other.zero_grad()
        loss_of(other(torch.ones(4, 6) + world.rank)).backward()
        for p, q in zip(compiled.parameters(), other.parameters()):
            torch.testing.assert_close(p.grad, q.grad)


# ------------------------------------------------------------------ what ranks must agree on


@case("other_options")
def other_options(world):
    compiled = world.compiled(MLP(), "in_graph", bucket_cap_mb=0.001 * (1 + world.rank))
    try:
        compiled(torch.ones(4, 6))
    except jitney.errors.JitneyError as error:
        assert "ranks 0 and 1 compile a DDP module with different options" in str(error), error
    else:
        raise AssertionError("different options went unnoticed")


@case("different_graphs")
def different_graphs(world):
    """Detected and named; the collectives meet all the same."""
    for mode in MODES:
        torch.manual_seed(0)
        model = Branching()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found, parameters = world.train(model, floats(6), lambda m: world.compiled(m, mode), steps=3)
        told = [str(w.message) for w in seen if "compiled different graphs" in str(w.message)]
        count = torch.tensor(len(told))
        dist.all_reduce(count)
        assert count >= 1
        assert all("operation 2 is" in t and "relu" in t and "gelu" in t and "cases.py" in t for t in told), told
        expected, _ = world.train(model, floats(6), DDP, steps=3)
        torch.testing.assert_close(found, expected)
        world.check_equal_on_ranks(parameters)


@case("explained")
def explained(world):
    for mode in MODES:
        ddp = DDP(MLP())
        options = {"ddp": mode, "bucket_cap_mb": CAP}
        text = str(jitney.explain(ddp, backend="aot_eager", options=options)(torch.ones(4, 6)))
        assert "DDP buckets:\n" in text and "bucket  parameters" in text and "c.weight" in text, text
        assert (text.count("joint of MLP") > 1) == (mode == "split"), text


@case("compiled_twice")
def compiled_twice(world):
    """One DDP module compiled in two modes, and explained between two steps: each call is of its own mode."""
    torch.manual_seed(0)
    model = MLP()
    expected, _ = world.train(model, floats(6), DDP, steps=6)
    model = copy.deepcopy(model)
    ddp = DDP(model, gradient_as_bucket_view=True)
    ways = [jitney.compile(ddp, backend="aot_eager", options={"ddp": m, "bucket_cap_mb": CAP}) for m in MODES]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(7 + world.rank)
    for number in range(6):
        x = torch.randn(4, 6)
        if number == 3:
            jitney.explain(ddp, backend="aot_eager")(x)
        optimizer.zero_grad()
        loss_of(ways[number % 2](x)).backward()
        optimizer.step()
    torch.testing.assert_close([p.detach() for p in model.parameters()], expected)
    world.check_equal_on_ranks(model.parameters())


@case("crosscheck")
def crosscheck(world):
    """Graphs are compared with eager's of this rank, and gradients are reduced after the backward."""
    wraps = [lambda m, mode=mode: world.compiled(m, mode, crosscheck=True) for mode in MODES]
    world.same_as_eager(MLP, floats(6), wraps, steps=4)


@case("fully_shard")
def fully_shard_case(world):
    """FSDP2: each block is compiled, with graph breaks at its hooks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world.size,))

    def train(compile_blocks):
        torch.manual_seed(0)
        model = MLP()
        for layer in (model.a, model.b, model.c):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        run = compile_blocks(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(7 + world.rank)
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(run(torch.randn(4, 6))).backward()
            optimizer.step()
        return [p.detach().full_tensor() for p in model.parameters()]

    expected = train(lambda m: m)
    for backend in ("aot_eager", "eager"):
        torch.testing.assert_close(train(lambda m: jitney.compile(m, backend=backend)), expected)


def main(path):
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    for text in ("torch.distributed", "`broadcast_buffers`"):
        warnings.filterwarnings("ignore", text)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    world = World(dist.get_rank(), dist.get_world_size())
    results = {}
    chosen = sys.argv[2:] or cases_for(world.size)
    for name in chosen:
        function, _, _ = CASES[name]
        begin = time.perf_counter()
        try:
            function(world)
            results[name] = ""
            print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        except Exception:
            results[name] = traceback.format_exc()
        with open(f"{path}.{world.rank}", "w") as file:
            json.dump(results, file)
        if results[name]:  # the ranks may have parted: nothing after this counts
            print(f"rank {world.rank}: {name}: {results[name]}", file=sys.stderr, flush=True)
            os._exit(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])

"""Programs as whole projects are written: matchers, message passing, agents, registries, hooks, corners of Python."""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import heapq
import inspect
import itertools
import operator
import re
from collections import Counter, deque, namedtuple
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from captured.table import Made, Table, leaf, t
from torch import nn, optim

program = Table()
EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
Transition = namedtuple("Transition", ("state", "action", "following", "reward"))  # noqa: PYI024


# ------------------------------------------------------------------ detection and speech


class Matcher:
    """As torchvision's and detectron's."""

    BELOW, BETWEEN = -1, -2

    def __init__(self, high: float, low: float) -> None:
        self.high, self.low = high, low

    def __call__(self, quality: torch.Tensor) -> torch.Tensor:
        values, matches = quality.max(dim=0)
        between = (values >= self.low) & (values < self.high)
        matches[values < self.low] = self.BELOW
        matches[between] = self.BETWEEN
        return matches


@program()
def matcher_of_boxes() -> Made:
    return Matcher(0.5, -0.2), t(3, 8)


@program(graphs=2)
def anchors_in_a_cache() -> Made:
    class Anchors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = [t(3, 4, seed=i).round() for i in range(2)]
            self.cache: dict[str, torch.Tensor] = {}

        def grid(self, sizes: Any) -> torch.Tensor:
            key = str(sizes)
            if key not in self.cache:
                found = []
                for (h, w), cell in zip(sizes, self.cells, strict=True):
                    y, x = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
                    at = torch.stack((x, y, x, y), -1).view(-1, 1, 4)
                    found.append((at + cell).reshape(-1, 4))
                self.cache[key] = torch.cat(found)
            return self.cache[key]

        def forward(self, *maps: torch.Tensor) -> torch.Tensor:
            return self.grid([m.shape[-2:] for m in maps]) * maps[0].mean()

    return Anchors(), t(1, 2, 4, 4), t(1, 2, 2, 2)


@program(train=True)
def transducer_by_lists() -> Made:
    def alpha(log_probs: torch.Tensor) -> torch.Tensor:
        rows, columns = log_probs.shape
        found: list[list[Any]] = [[None] * columns for _ in range(rows)]
        found[0][0] = log_probs.new_zeros(())
        for i, j in itertools.product(range(rows), range(columns)):
            ways = [found[i - 1][j] + log_probs[i - 1, j]] if i else []
            if j:
                ways.append(found[i][j - 1] + log_probs[i, j - 1])
            if ways:
                found[i][j] = torch.logsumexp(torch.stack(ways), 0)
        return found[-1][-1]

    return alpha, leaf(3, 3)


@dataclass(order=True)
class Hypothesis:
    score: float
    tokens: list[int] = field(compare=False, default_factory=list)


@program()
def beam_of_dataclasses() -> Made:
    def f(x: torch.Tensor, steps: int) -> Any:
        beams = [Hypothesis(0.0)]
        for step in range(steps):
            grown = [Hypothesis(b.score - (k - step) ** 2, [*b.tokens, k]) for b in beams for k in range(3)]
            beams = heapq.nlargest(2, grown)
        return x * beams[0].score + len(beams), beams[0].tokens

    return f, t(), 3


# ------------------------------------------------------------------ graphs of nodes


class Passing(nn.Module):
    """Gives ``message`` what its parameters' names ask for."""

    def __init__(self, sizes: tuple[int, int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2 * sizes[0], sizes[1])
        self.asked = list(inspect.signature(self.message).parameters)

    def message(self, x_i: torch.Tensor, x_j: torch.Tensor) -> Any:
        return self.layer(torch.cat([x_i, x_j - x_i], -1)).relu()

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        ends = {"_i": edges[1], "_j": edges[0]}
        given = {name: {"x": x}[name[:-2]][ends[name[-2:]]] for name in self.asked}
        messages = self.message(**given)
        out = x.new_zeros(len(x), messages.size(-1))
        return out.index_add_(0, edges[1], messages)


@program(train=True)
def messages_by_signature() -> Made:
    return Passing((3, 4)), t(4, 3), EDGES


@program(train=True)
def neighbours_in_a_dictionary() -> Made:
    def f(x: torch.Tensor) -> torch.Tensor:
        near: dict[int, list[int]] = {0: [1, 2], 1: [0], 2: [3, 0], 3: []}
        state = {k: x[k] for k in near}
        for _ in range(2):
            state = {k: torch.stack([state[n] for n in v] + [state[k]]).mean(0) for k, v in near.items()}
        return torch.stack([state[k] for k in sorted(state)])

    return f, leaf(4, 3)


# ------------------------------------------------------------------ agents and steps


@program()
def advantages_backwards() -> Made:
    def f(rewards: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        found, last = torch.zeros_like(rewards), 0
        for i in reversed(range(len(rewards))):
            delta = rewards[i] + 0.99 * values[i + 1] - values[i]
            found[i] = last = delta + 0.9 * last
        return found

    return f, t(5), t(6)


@program()
def batch_of_transitions() -> Made:
    torch.manual_seed(0)
    policy = nn.Linear(3, 2)

    def f(*states: torch.Tensor) -> torch.Tensor:
        memory: deque[Any] = deque(maxlen=4)
        for i, state in enumerate(states):
            memory.append(Transition(state, torch.tensor([[i % 2]]), state * 2 if i % 2 else None, torch.tensor([1.0])))
        batch = Transition(*zip(*memory, strict=True))
        mask = torch.tensor([s is not None for s in batch.following])
        following = torch.cat([s for s in batch.following if s is not None])
        q = policy(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        best = torch.zeros(len(memory)).masked_scatter(mask, policy(following).max(1).values)
        return F.smooth_l1_loss(q, (best * 0.9 + torch.cat(batch.reward)).unsqueeze(1)).detach()

    return f, *[t(1, 3, seed=i) for i in range(5)]


@program(graphs=2)
def critics_frozen_meanwhile() -> Made:
    torch.manual_seed(0)
    actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
    target = copy.deepcopy(critic).requires_grad_(False)
    first, second = optim.Adam(actor.parameters(), 0.01), optim.Adam(critic.parameters(), 0.01)

    def update(state: torch.Tensor, action: torch.Tensor) -> Any:
        second.zero_grad()
        loss = (critic(torch.cat([state, action], -1)) - target(torch.cat([state, action], -1)) - 1).square().mean()
        loss.backward()
        second.step()
        for p in critic.parameters():
            p.requires_grad = False
        first.zero_grad()
        wanted = -critic(torch.cat([state, actor(state).tanh()], -1)).mean()
        wanted.backward()
        first.step()
        for p in critic.parameters():
            p.requires_grad = True
        with torch.no_grad():
            for p, old in zip(critic.parameters(), target.parameters(), strict=True):
                old.data.mul_(0.9).add_(0.1 * p.data)
        return loss.detach(), wanted.detach(), target.weight.clone()

    return update, t(4, 3), t(4, 2)


@program()
def momentum_encoder() -> Made:
    torch.manual_seed(0)
    online = nn.Linear(4, 3)
    target = copy.deepcopy(online).requires_grad_(False)

    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        with torch.no_grad():
            for p, q in zip(online.parameters(), target.parameters(), strict=True):
                q.data.mul_(0.9).add_(p.data, alpha=0.1)
            z = target(b)
        return 2 - 2 * F.cosine_similarity(online(a), z.detach(), dim=-1).mean().detach(), target.weight.clone()

    return f, t(2, 4), t(2, 4, seed=1)


@program(train=True)
def experts_in_a_list() -> Made:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> Any:
            weights, chosen = torch.topk(self.gate(x).softmax(-1), 2)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                for k in range(2):
                    mask = (chosen[:, k] == number).unsqueeze(-1)
                    out = out + torch.where(mask, weights[:, k : k + 1] * expert(x), torch.zeros_like(x))
            return out, {"load": torch.stack([(chosen == n).sum() for n in range(3)])}

    torch.manual_seed(0)
    return Experts(), t(5, 4)


# ------------------------------------------------------------------ hooks, wrappers, scopes


@program(graphs=2)
def hooks_for_a_while() -> Made:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    @contextlib.contextmanager
    def recorded() -> Any:
        seen: list[torch.Tensor] = []
        handles = [m.register_forward_hook(lambda _, args, out: seen.append(out.detach())) for m in model]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()

    def f(x: torch.Tensor) -> Any:
        with recorded() as seen:
            y = model(x).detach()
        return y, seen

    return f, t(2, 3)


class Wrapped(nn.Module):
    """Hands on what it has not itself."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any) -> Any:
        return self.module(*args) + self.bias * self.in_features


@program(train=True)
def wrapper_that_hands_on() -> Made:
    torch.manual_seed(0)
    return Wrapped(nn.Linear(3, 2)), t(2, 3)


def retried(times: int) -> Any:
    def around(fn: Any) -> Any:
        @functools.wraps(fn)
        def call(*args: Any) -> Any:
            last = None
            for i in range(times):
                try:
                    return fn(*args, attempt=i)
                except ValueError as error:
                    last = error
            raise RuntimeError("no attempt is left") from last

        return call

    return around


@program()
def attempts() -> Made:
    @retried(3)
    def f(x: torch.Tensor, attempt: int) -> torch.Tensor:
        if attempt < 2:
            raise ValueError(f"attempt {attempt}")
        return x * attempt

    return f, t()


# ------------------------------------------------------------------ configurations, registries, text


class Pool(str, enum.Enum):
    MEAN = "mean"
    MAX = "max"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return next((m for m in cls if m.value == str(value).lower()), None)


@program()
def members_that_are_missing() -> Made:
    def f(x: torch.Tensor) -> Any:
        try:
            Pool("none")
        except ValueError as error:
            x = x + len(str(error))
        table = {Pool.MEAN: lambda v: v.mean(0), Pool.MAX: lambda v: v.max(0).values}
        return table[Pool("MAX")](x), Pool("mean") == "mean"

    return f, t()


class Registered(type):
    known: dict[str, type] = {}

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], key: str = "") -> Any:
        made = super().__new__(cls, name, bases, space)
        cls.known[key or name] = made
        return made

    def __getitem__(cls, key: str) -> type:
        return Registered.known[key]

    def __len__(cls) -> int:
        return len(Registered.known)


class Op(metaclass=Registered):
    def __init__(self, *args: Any) -> None:
        self.args = args

    def __call__(self, x: torch.Tensor) -> Any:
        return x + sum(self.args)


class Times(Op, key="times"):
    def __call__(self, x: torch.Tensor) -> Any:
        return functools.reduce(operator.mul, self.args, x)


@program()
def registry_by_metaclass() -> Made:
    return lambda x: (Op["times"](2, 3)(x) + Op(1)(x), len(Op)), t()  # type: ignore[index, arg-type]


@dataclass(frozen=True)
class Config:
    width: int = 4
    act: str = "relu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", self.width * 2)


@program()
def configuration_replaced() -> Made:
    def f(x: torch.Tensor, config: Config) -> Any:
        other: Any = replace(config, width=3)
        return getattr(F, config.act)(x) * other.hidden, repr(other)

    return f, t(), Config()


@program()
def tokens_of_text() -> Made:
    pattern = re.compile(r"\w+|[^\w\s]")
    counts = Counter(w for text in ("Hello, world!", "the world") for w in pattern.findall(text.lower()))
    numbers = {w: i for i, (w, _) in enumerate(counts.most_common(), 1)}
    torch.manual_seed(0)
    table = nn.Embedding(len(numbers) + 1, 3)

    def f(text: str) -> torch.Tensor:
        return table(torch.tensor([[numbers.get(w, 0) for w in pattern.findall(text.lower())]])).mean(1).detach()

    return f, "hello new world?"


@program()
def merges_of_pairs() -> Made:
    def f(x: torch.Tensor, word: str, ranks: dict[tuple[str, str], int]) -> Any:
        parts = tuple(word)
        while len(parts) > 1:
            best = min(set(itertools.pairwise(parts)), key=lambda pair: (ranks.get(pair, 99), pair))
            if best not in ranks:
                break
            merged, i = [], 0
            while i < len(parts):
                both = parts[i : i + 2] == best
                merged.append("".join(best) if both else parts[i])
                i += 2 if both else 1
            parts = tuple(merged)
        return x * len(parts), parts

    return f, t(), "lower", {("l", "o"): 0, ("lo", "w"): 1}


# ------------------------------------------------------------------ the language's corners


class Polynomial:
    def __init__(self, *factors: Any) -> None:
        self.factors = list(factors)

    def __call__(self, x: torch.Tensor) -> Any:
        return functools.reduce(lambda a, c: a * x + c, reversed(self.factors), torch.zeros_like(x))

    def __mul__(self, other: Any) -> Polynomial:
        if not isinstance(other, Polynomial):
            return Polynomial(*[f * other for f in self.factors])
        made = [0] * (len(self.factors) + len(other.factors) - 1)
        for (i, a), (j, b) in itertools.product(enumerate(self.factors), enumerate(other.factors)):
            made[i + j] += a * b
        return Polynomial(*made)

    __rmul__ = __mul__

    def __iadd__(self, other: Polynomial) -> Polynomial:
        self.factors = [a + b for a, b in itertools.zip_longest(self.factors, other.factors, fillvalue=0)]
        return self

    def __lt__(self, other: Polynomial) -> bool:
        return len(self.factors) < len(other.factors)


@program(train=True)
def operators_of_objects() -> Made:
    def f(x: torch.Tensor) -> Any:
        p = 2 * Polynomial(1, 1) * Polynomial(0, 3)
        p += Polynomial(1)
        return p(x), min([p, Polynomial(1)]).factors

    return f, leaf()


class Conv(NamedTuple):
    size: int
    step: int = 1


@program()
def patterns_of_layers() -> Made:
    def f(x: torch.Tensor, *layers: Any) -> torch.Tensor:
        for layer in layers:
            match layer:
                case Conv(size=k, step=1) if k > 1:
                    x = x * k
                case Conv(k, s):
                    x = x + k + s
                case {"op": "scale", "by": v, **rest}:
                    x = x * v + len(rest)
                case [a, *others]:
                    x = x + a + len(others)
                case "neg" | "minus":
                    x = -x
                case _:
                    raise ValueError(layer)
        return x

    return f, t(), Conv(3), Conv(1, 2), {"op": "scale", "by": 2, "z": 1}, (5, 6, 7), "neg"


@program()
def generators_that_are_sent_to() -> Made:
    def running() -> Any:
        total: Any = 0
        while (value := (yield total)) is not None:
            total = total + value
        return total

    def f(x: torch.Tensor) -> Any:
        adder = running()
        next(adder)
        last = [adder.send(part.sum()) for part in (x[i : i + 2] for i in range(0, len(x), 2))][-1]
        try:
            adder.send(None)
        except StopIteration as stop:
            return last, stop.value
        return None

    return f, t(6)


class Typed:
    """A descriptor that checks."""

    def __init__(self, kind: type, default: Any) -> None:
        self.kind, self.default = kind, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, obj: Any, owner: type) -> Any:
        return self if obj is None else getattr(obj, self.name, self.default)

    def __set__(self, obj: Any, value: Any) -> None:
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.name[1:]} must be a {self.kind.__name__}, not a {type(value).__name__}")
        setattr(obj, self.name, value)

    def __delete__(self, obj: Any) -> None:
        delattr(obj, self.name)


class Rates:
    rate = Typed(float, 0.1)


@program()
def descriptors_that_check() -> Made:
    rates = Rates()

    def f(x: torch.Tensor) -> Any:
        rates.rate = 0.5
        try:
            rates.rate = "fast"
        except TypeError as error:
            told = str(error)
        y = x * rates.rate
        del rates.rate
        return y * rates.rate, told

    return f, t()

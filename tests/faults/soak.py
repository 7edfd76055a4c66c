"""Mixed traffic for minutes: does memory stay, does everybody get on, how long do calls take?

    python tests/faults/soak.py --minutes 10 --threads 4

Threads call functions and modules compiled by several backends, with shapes that vary; train; compile functions that
nobody called before, and drop them; raise out of graphs and after breaks; and now and then reset all that is compiled.
Each result is compared with eager. A line through the process's memory in the last half of the time has to be flat, no
thread may stand still, and what calls of one warm function take is told beside eager.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import statistics
import sys
import threading
import time
import warnings
from array import array
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import nn

import jitney

BACKENDS = ("eager", "aot_eager", "llvm_cpu")
PATIENCE_S = 120.0
GROWTH_MB, GROWTH = (
    16.0,
    0.02,
)  # what the fitted line may rise by in the last half: so much, and of the memory this part


class Net(nn.Module):
    """With a norm, whose statistics stay."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of rows."""
        return self.layers(x).softmax(-1)


def warm(x: torch.Tensor) -> torch.Tensor:
    """Whose calls are timed."""
    return (x * 2 + 1).relu().sum(-1).tanh()


def broken(x: torch.Tensor, words: dict[str, float]) -> torch.Tensor:
    """With a graph break, a number that varies, and an error for some."""
    y = x * words["scale"]
    print(end="")
    if x.shape[0] == 7:
        raise ValueError("seven rows")
    return y.cumsum(0) + len(words)


class Traffic:
    """What one thread does, over and over."""

    def __init__(self, seed: int, stop: threading.Event) -> None:
        self.draw = random.Random(seed)
        self.stop = stop
        self.net = Net()
        self.seconds: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self.faults: list[str] = []
        self.calls = 0
        self.progress = time.monotonic()
        self.what = ""
        self._compile()

    def _compile(self) -> None:
        self.warm = {name: jitney.compile(warm, backend=name) for name in BACKENDS}
        self.warm["plain"] = warm
        self.nets = {name: jitney.compile(self.net, backend=name) for name in BACKENDS}
        self.broken = {name: jitney.compile(broken, backend=name) for name in BACKENDS}

    def run(self) -> None:
        """Until it is told to stop."""
        kinds: list[tuple[Callable[[], None], int]] = [
            *((self.timed, 60), (self.infer, 12), (self.train, 12), (self.breaks, 12), (self.anew, 4), (self.reset, 1)),
        ]
        actions, weights = zip(*kinds, strict=True)
        while not self.stop.is_set():
            action = self.draw.choices(actions, weights)[0]
            self.what = action.__name__
            try:
                action()
            except Exception as error:
                self.faults.append(f"{self.what}: {type(error).__name__}: {error!s:.300}")
            self.calls += 1
            self.progress = time.monotonic()

    def same(self, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        """Raise if they differ by more than rounding."""
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)

    def rows(self, columns: int) -> torch.Tensor:
        """Of varying number."""
        return torch.rand(self.draw.choice((1, 2, 3, 5, 7, 8, 13, 32)), columns)

    def timed(self) -> None:
        """One function, one shape."""
        x = torch.ones(8, 64)
        for name, fn in self.warm.items():
            begin = time.perf_counter()
            found = fn(x)
            self.seconds[name].append(time.perf_counter() - begin)
            self.same(found, warm(x))

    def infer(self) -> None:
        """A module, without gradients."""
        with torch.no_grad():
            x = self.rows(16)
            self.same(self.nets[self.draw.choice(BACKENDS)](x), self.net(x))

    def train(self) -> None:
        """A step forward and back."""
        x = self.rows(16)
        grads = []
        for fn in (self.nets[self.draw.choice(BACKENDS)], self.net):
            self.net.zero_grad()
            fn(x).square().sum().backward()
            grads.append([p.grad for p in self.net.parameters()])
        for ours, theirs in zip(*grads, strict=True):
            assert ours is not None and theirs is not None
            self.same(ours, theirs)

    def breaks(self) -> None:
        """A break, and maybe an error after it."""
        x, words = self.rows(4), {"scale": self.draw.choice((1.0, 2.0, 3.5))}
        try:
            found = self.broken[self.draw.choice(BACKENDS)](x, words)
        except ValueError:
            assert x.shape[0] == 7
        else:
            self.same(found, broken(x, words))

    def anew(self) -> None:
        """A function that is new and goes at once."""
        k = self.draw.random()
        big = torch.rand(1000)

        def fresh(x: torch.Tensor) -> torch.Tensor:
            return (x * k + big[0]).exp()

        x = self.rows(4)
        self.same(jitney.compile(fresh, backend=self.draw.choice(BACKENDS))(x), fresh(x))

    def reset(self) -> None:
        """Forget all that is compiled, for every thread."""
        if self.draw.random() < 0.1:
            jitney.reset()
            self._compile()


def resident_mb() -> float:
    """This process's memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def rise(samples: list[tuple[float, float]]) -> float:
    """By how much a line through the last half of (time, value) rises within it."""
    last = samples[len(samples) // 2 :]
    if len(last) < 3:
        return 0.0
    slope, _ = statistics.linear_regression(*zip(*last, strict=True))
    return slope * (last[-1][0] - last[0][0])


def percentiles(seconds: list[float]) -> str:
    """Of microseconds: the median, the 99th, and the 99.9th."""
    ordered = sorted(seconds)
    return " / ".join(f"{1e6 * ordered[min(int(p * len(ordered)), len(ordered) - 1)]:.0f}" for p in (0.5, 0.99, 0.999))


def watch(workers: list[Traffic], minutes: float) -> tuple[list[tuple[float, float]], list[str]]:
    """Memory, sampled while they work; and who stood still."""
    begin = time.monotonic()
    samples: list[tuple[float, float]] = []
    while time.monotonic() - begin < 60 * minutes:
        time.sleep(min(2.0, 2 * minutes))
        gc.collect()  # cycles that wait for the collector are no leak
        samples.append((time.monotonic() - begin, resident_mb()))
        stuck = [w for w in workers if time.monotonic() - w.progress > PATIENCE_S]
        if stuck:
            faulthandler.dump_traceback(all_threads=True)
            return samples, [f"a thread stands still for {PATIENCE_S} s in {w.what}" for w in stuck]
    return samples, []


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    stop = threading.Event()
    with jitney.config.patch(cache=False):
        workers = [Traffic(options.seed * 1000 + number, stop) for number in range(options.threads)]
        threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        samples, faults = watch(workers, options.minutes)
        stop.set()
        for thread in threads:
            thread.join(0.0 if faults else PATIENCE_S)
    if any(thread.is_alive() for thread in threads):
        print(*faults, "threads do not end", sep="\n", flush=True)
        os._exit(1)
    for worker in workers:
        faults += worker.faults
    grown, last = rise(samples), samples[-1][1]
    if grown > GROWTH_MB + GROWTH * last and options.minutes >= 1:
        faults.append(f"memory rises by {grown:.1f} MB in the last half")
    quarters = [samples[min(i * len(samples) // 4, len(samples) - 1)][1] for i in range(5)]
    print(f"{sum(w.calls for w in workers)} rounds of {options.threads} threads in {options.minutes:g} minutes")
    print(f"memory in MB: {' '.join(f'{q:.0f}' for q in quarters)}; the line of the last half rises by {grown:.1f}")
    for name in workers[0].warm:
        seconds = [s for worker in workers for s in worker.seconds[name]]
        print(f"{name}: {percentiles(seconds)} us (p50 / p99 / p99.9) of {len(seconds)} calls")
    print(f"seed {options.seed}: {len(faults)} faults", *faults[:20], sep="\n")
    sys.stdout.flush()
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())

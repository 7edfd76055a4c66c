"""Requests of random lengths from many threads at one compiled model: speed, answers, and what the process grows by.

    python benchmarks/serving.py --requests 100000 --threads 8

Prints a line for each tenth: requests a second, resident memory, captures so far, and the worst answer's distance from
eager's. Ends with 1 where an answer is wrong, where no request ends for a minute, or where memory grows by more than
5% after the first fifth.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

import jitney
from jitney import events

PAGE = 4096
STUCK = 60.0  # seconds without an answer that count as a deadlock


def resident() -> float:
    """Megabytes of memory that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


class Server:
    """A small encoder behind threads that take one request after the other."""

    def __init__(self, backend: str, longest: int) -> None:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        self.compiled = jitney.compile(self.model, backend=backend)
        self.longest = longest
        self.lock = threading.Lock()
        self.answered = 0
        self.worst = 0.0
        self.captures = 0
        self.errors: list[BaseException] = []

    def note(self, event: events.Event) -> None:
        """Count captures."""
        self.captures += isinstance(event, events.FrameCaptured)

    def work(self, seed: int, requests: int) -> None:
        """One thread's requests; one in 64 is compared with eager."""
        lengths, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        try:
            with torch.inference_mode():
                for number in range(requests):
                    x = torch.randn(lengths.randint(1, 3), lengths.randint(2, self.longest), 32, generator=generator)
                    found = self.compiled(x)
                    away = float((found - self.model(x)).abs().max()) if number % 64 == 0 else 0.0
                    with self.lock:
                        self.answered += 1
                        self.worst = max(self.worst, away)
        except BaseException as error:
            self.errors.append(error)


def main() -> int:
    """Serve, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--longest", type=int, default=48)
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer: nothing would be compiled
    server = Server(options.backend, options.longest)
    share = options.requests // options.threads
    threads = [threading.Thread(target=server.work, args=(i, share), daemon=True) for i in range(options.threads)]
    memory: list[float] = []
    begin = last = time.perf_counter()
    seen = 0
    with events.listen(server.note):
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            now, answered = time.perf_counter(), server.answered
            if answered > seen:
                seen, last = answered, now
            elif now - last > STUCK:
                faulthandler.dump_traceback(all_threads=True)
                return 1
            while len(memory) < 10 * answered // (share * options.threads):
                gc.collect()
                memory.append(resident())
                print(
                    f"{answered:7,} requests {answered / (now - begin):6,.0f}/s {memory[-1]:7.1f} MB "
                    f"{server.captures} captures, off by {server.worst:.1e}",
                    flush=True,
                )
    for error in server.errors:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    grown = memory[-1] / memory[1] if len(memory) > 2 else 1.0
    print(f"memory at the end over that after a fifth: {grown:.3f}")
    return int(bool(server.errors) or server.worst > 1e-4 or grown > 1.05)


if __name__ == "__main__":
    sys.exit(main())

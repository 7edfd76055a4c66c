"""What the ranks tell each other while they compile, through the store by which their processes found each other."""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any

from torch import fx

from jitney.backends import warn
from jitney.errors import JitneyError, describe_frame
from jitney_ddp_bucketing.private import default_store

_numbers: collections.Counter[str] = collections.Counter()  # by process group and subject: how many there were
MAX_OPERATIONS = 5000  # of a graph that are compared one by one


class Ranks:
    """The ranks of one DDP module's process group.

    Args:
        group: the module's process group.
        subject: what tells modules apart; those with the same are told apart by the order in which ranks compile them.
    """

    def __init__(self, group: Any, subject: str) -> None:
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.store = default_store()
        name = f"jitney_ddp/{group.group_name}/{hashlib.sha256(subject.encode()).hexdigest()[:16]}"
        self.prefix = f"{name}/{_numbers[name]}"
        _numbers[name] += 1
        self._graphs = 0
        self._warned = False

    def exchange(self, topic: str, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """What every rank has to say on a topic, by rank; waits for all of them.

        Raises:
            JitneyError: one says nothing within the store's timeout (that of ``init_process_group``).
        """
        self.store.set(f"{self.prefix}/{topic}/{self.rank}", json.dumps(mine))
        found = []
        for rank in range(self.size):
            try:
                found.append(json.loads(self.store.get(f"{self.prefix}/{topic}/{rank}")))
            except Exception as error:  # the store's own class differs between versions of torch
                raise JitneyError(
                    f"rank {rank} did not compile its DDP module within {self.store.timeout}: {error}",
                    hint="compile the same modules in the same order on all ranks; see what rank "
                    f"{rank} printed, it may have died",
                    phase="ddp",
                ) from error
        return found

    def compare(self, graph: fx.Graph, frame: str) -> None:
        """Say once if another rank has captured another graph for its same compile; waits for nobody.

        Rank 0 looks at all others, these look at rank 0; what is not there yet will look itself. A graph that the other
        rank has captured before, for other sizes, is no other graph.
        """
        number = self._graphs
        self._graphs += 1
        mine = _described(graph)
        self.store.set(f"{self.prefix}/graph/{number}/{self.rank}", json.dumps(mine))
        others = range(1, self.size) if self.rank == 0 else [0]
        for rank in others:
            keys = [f"{self.prefix}/graph/{n}/{rank}" for n in range(number, -1, -1)]
            if self._warned or not self.store.check(keys[:1]):
                continue
            theirs = json.loads(self.store.get(keys[0]))
            difference = _difference(mine, theirs)
            if difference and not any(mine == json.loads(self.store.get(key)) for key in keys[1:]):
                self._warned = True
                warn(
                    f"ranks {self.rank} and {rank} compiled different graphs of {frame}: {difference}. Parameters that "
                    "one of them leaves out need DDP(find_unused_parameters=True)"
                )


def _described(graph: fx.Graph) -> list[list[str]]:
    """The operations and the user's lines that they come from."""
    found = []
    for node in itertools.islice((n for n in graph.nodes if n.op.startswith("call_")), MAX_OPERATIONS):
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        stack = node.meta.get("user_stack", ())
        found.append([str(name), describe_frame(stack[-1]) if stack else ""])
    return found


def _difference(mine: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]]) -> str:
    """The first operation that differs; empty if none does."""
    for number, (here, there) in enumerate(itertools.zip_longest(mine, theirs), 1):
        if here is None or there is None or here[0] != there[0]:
            return f"operation {number} is {_shown(here)} here, {_shown(there)} there"
    return ""


def _shown(operation: Sequence[str] | None) -> str:
    if operation is None:
        return "missing"
    return f"{operation[0]} ({operation[1]})" if operation[1] else operation[0]

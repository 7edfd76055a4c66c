"""What suits a machine: the numbers by which lowering and scheduling decide."""

from __future__ import annotations

from dataclasses import dataclass

from jitney_lowering.ir.loops import SCANS, SORT

LINE = 64  # bytes of a line of a CPU's cache


@dataclass(frozen=True)
class Policy:
    """For CPUs as it stands: few threads with large caches.

    Args:
        few_rows: with fewer rows there is not enough to do at a time.
        partial_limit: elements that a thread may accumulate over its rows.
        buffer_limit: buffers in one kernel.
        chosen_parts: a concatenation of at most as many parts is not put together in memory: each reader chooses.
        one_result: does a row have one result of each reduction, with nothing accumulated in memory of the row?
        swept_row: elements of the longest row over which results of rows and results over rows go together; all of the
            latter must be elements of rows. None: there is no such limit.
        short_row: elements of the longest row that is gone through together with others, so that vectors go along rows;
            0: each row is gone through by itself.
        unrolled_row: elements of the longest row, of constant size, that is written out: a reduction of so many is one
            value, loops over so many that go together with others are statements. 0: none is.
        unrolled_results: fewest results of a reduction that is so written out; fewer are computed beside what they are
            of, rather than by a kernel of their own.
        unrolled_window: elements of the longest row that is so written out where rows overlap, as windows do that slide
            over a row: neighbours read the same elements then. 0: none is.
        scratch_row: the same, for rows that would need scratch memory otherwise.
        row_lanes: are the lanes of a vector rows that are written out, pointwise ones too? Otherwise threads are, or
            elements of rows, where each computes what it reads of its row.
        shared_row: elements of the longest row, of constant size, of which a thread has all rather than one where they
            have much in common: it is written out then. 0: none is.
        single_row: elements that one program reduces to a number, and goes on with, sooner than another kernel is
            launched. 0: numbers are the results of kernels of their own.
        long_row: elements of a row that, if there are few, is worth being shared by several threads. None: none is.
        alike: elements of the largest results that nobody in the graph reads which are computed by one kernel because
            they have equal sizes, such as running statistics or updates of parameters; 0: none are.
        brief: bytes that are read and written by the largest kernel that takes about as long as its launch: those that
            have equal ranges are one. 0: none are.
        scattered_row: bytes of lines of memory which a row may take a few neighbours each from. Of more, a kernel of
            its own puts what is reduced into memory row by row, or reads them whole; copies are reduced along what they
            are made of, and few rows of much work are shared by threads. 0: lines of memory do not matter.
        waiting_row: elements of the shortest row, and fewest rows, in which threads wait for what others have stored of
            the same row, unless there is little in all. 0: there is no such limit.
        turned_row: elements of the longest row for which loops are put in another order than that of memory; see
            ``scheduler/loop_order.py``. 0: they never are.
        split_loop: iterations of the shortest inner loop that is made where a loop's variable is divided; see
            ``scheduler/loop_split.py``. 0: division costs nothing.
        packed: most numbers in an integer (two weights of 4 bits in a byte, say) that is gone through as a whole where
            they are reduced, see ``scheduler/rows/packed.py``, and that are not put together in memory before. 0: none.
        paired: are rows of pairs that are computed from pairs gone through pair by pair? See
            ``scheduler/rows/interleaved.py``.
        positions: the cost of operations on positions alone which each reader computes anew.
        recompute: the cost of operations (``OPERATIONS``) that takes as long as a byte of memory traffic. What several
            kernels read is computed by each if that is less; 0: it is kept in memory.
        asserts: does the emitter write ``values.Checked``, which stops the device? Otherwise what must not happen is
            looked for by steps of its own.
        fused_gathers: are elements of a tensor in memory loaded at computed places, in kernels that go on with them?
            Otherwise operators that pick such elements run as a whole.
        fused_bags: are rows of a table added up bag by bag in kernels? Otherwise by an operator that runs as a whole.
        samples: are images made larger, smaller or turned in kernels, by loads at computed places? Otherwise operators
            that do so run as a whole.
        lone_images: also larger images with which no pointwise operator goes on? Whoever gathers fast does.
        lone_samples: also planes at the places of a grid, and gradients which few threads would rather add up at the
            place of each?
        scatters: does the emitter write ``kernel.Scatter``, with atomic sums, for threads that run at the same time?
        scatters_in_order: does it write them so that what goes to one place goes there one after the other? So eager
            has it where algorithms are to be deterministic. With neither of both, operators that store at computed
            places run as a whole; with this alone, so do those whose elements each have an index of their own, along
            another dimension than the last.
        filter_window: elements of the largest window of a convolution of single channels that kernels compute; 0: all
            convolutions are operators that run as a whole.
        streamed_bytes: of the widest elements of a large matrix that is multiplied by one vector in a kernel which goes
            on with the products, rather than by an operator. 0: none is.
        scans: the kinds of scans (``loops.SCANS``) that the emitter writes. Others are operators that run as a whole.
        scans_in_order: does eager's kernel scan one element after the other, in the next wider type of floats? What may
            leave the range of its type in another order is left to it then.
        scanned_across: are rows whose elements lie far apart in memory scanned side by side with their neighbours?
            Otherwise such scans are operators that run as a whole.
        float8: does the emitter load, store, convert and bitcast ``FLOAT8`` dtypes, choose between elements of them,
            and write constants of them? Otherwise operators on them run as a whole.
    """

    few_rows: int = 8
    partial_limit: int = 1 << 18
    buffer_limit: int = 48
    chosen_parts: int = 0
    one_result: bool = False
    swept_row: int | None = None
    short_row: int = 0
    unrolled_row: int = 0
    unrolled_results: int = 1
    unrolled_window: int = 0
    scratch_row: int = 0
    row_lanes: bool = False
    shared_row: int = 0
    single_row: int = 0
    long_row: int | None = None
    alike: int = 0
    brief: int = 0
    scattered_row: int = 0
    waiting_row: int = 0
    turned_row: int = 0
    split_loop: int = 0
    packed: int = 0
    paired: bool = False
    positions: int = 16
    recompute: float = 0
    asserts: bool = False
    fused_gathers: bool = False
    fused_bags: bool = False
    samples: bool = False
    lone_images: bool = False
    lone_samples: bool = False
    scatters: bool = False
    scatters_in_order: bool = False
    filter_window: int = 0
    streamed_bytes: int = 0
    scans: frozenset[str] = frozenset()
    scans_in_order: bool = True
    scanned_across: bool = False
    float8: bool = False

    @property
    def chooses(self) -> bool:
        """Does an element's reader choose where it comes from, rather than each part go to its place in memory?"""
        return self.chosen_parts > 0


CPU = Policy(
    short_row=15, unrolled_row=4, unrolled_results=128, scratch_row=4, row_lanes=True, scattered_row=1 << 17,
    split_loop=8, positions=10, scans=frozenset(SCANS) - {SORT}, fused_gathers=True, samples=True, float8=True,
    streamed_bytes=2, packed=8,
)  # fmt: skip
GPU = Policy(
    few_rows=128, chosen_parts=4, one_result=True, swept_row=16384, unrolled_row=4, unrolled_window=32, scratch_row=8,
    shared_row=16, single_row=8192, long_row=32768, alike=1 << 22, brief=1 << 24, waiting_row=512, turned_row=1024,
    recompute=8, fused_gathers=True, fused_bags=True, samples=True, lone_images=True, lone_samples=True,
    filter_window=81, streamed_bytes=8, scans=frozenset(SCANS), scans_in_order=False, scanned_across=True, float8=True,
    packed=8, paired=True,
)  # fmt: skip
"""Thousands of threads, registers rather than caches, kernels that cost some microseconds each."""

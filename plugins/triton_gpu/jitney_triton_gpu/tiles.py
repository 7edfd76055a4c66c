"""How large the tiles are, for kernels of each form. Numbers measured on an H200 (132 multiprocessors)."""

from __future__ import annotations

from dataclasses import dataclass

PROCESSORS = 132
POINTWISE = 1024  # elements of a program
VECTOR = 4  # elements of float32 that a thread loads at once
# What an element costs, as of ``OPERATIONS``, where a thread has few: code for many does not fit the instruction cache.
MUCH, VERY_MUCH = 64, 128
MANY = 20  # buffers of a kernel that updates many parameters
LONGEST_ROW = 16384  # elements that a program keeps in registers
GUESS = 8192  # for a symbolic size
LARGE = 1 << 20  # bytes of a temporary that has memory of its own; smaller ones share an arena
PAIRED, SHARED_WORK = 4, 0.2  # rows of a program where so much of the work on an element is the same for all rows
TRANSPOSED = 2048  # elements of two axes
SWEPT = 2048  # elements of several rows
PIECE = (4096, 16)  # elements and warps
CACHE = 48 << 20  # bytes that stay in the cache until they are read again
EACH, REGISTERS, CROWDED = 8, 64, 256  # elements of a thread, registers for them; threads where these are too few
MOST_REGISTERS = 128  # of a thread, for sums over columns
ROW_REGISTERS = 128  # of a row that a program holds as a whole
NARROW = 1024  # elements of a warp that goes through rows of bytes
TOTALS = 256 * 128  # sums that a program may hold in registers
FEW_ROWS = 16  # or columns of a product: memory is what takes time
SHARED = 200 << 10  # bytes of shared memory that a program may have
# How many pieces of what a loop reads are on their way at a time, by the form of the kernel.
STAGES = {"rows": 1, "split": 1, "sweep": 3}


def loop(form: str, start: str, end: str, step: str = "1", stages: int = 0) -> str:
    """The range of a loop; ``stages``: other than the form's."""
    stages = stages or STAGES[form]
    if stages == 1:
        return f"range({start}, {end}, {step})"
    return f"tl.range({start}, {end}, {step}, num_stages={stages})"


@dataclass(frozen=True)
class Tile:
    """Block sizes along the kept and the reduced axis, warps, and is the reduced axis one block?

    ``stages``: how many pieces of that are on their way at a time; 0: as usual.
    """

    x: int
    r: int
    warps: int
    whole: bool = False
    stages: int = 0

    def __post_init__(self) -> None:
        for number in (self.x, self.r, self.warps):
            if number < 1 or number & (number - 1):
                raise ValueError(f"{self}: {number} is no power of two")


@dataclass(frozen=True)
class Tuning:
    """Other block sizes than the usual ones: how often each is doubled (or, if negative, halved).

    Args:
        x: elements along the kept axis.
        r: elements along the reduced axis, unless it is one block.
        warps: of a program.
        many: parts of a reduction, or programs that sweep over rows.
        stages: how many pieces are on their way at a time; 0: as usual.
    """

    x: int = 0
    r: int = 0
    warps: int = 0
    many: int = 0
    stages: int = 0

    def tile(self, tile: Tile) -> Tile:
        """The tile with other sizes."""
        r = tile.r if tile.whole else doubled(tile.r, self.r)
        warps, stages = min(doubled(tile.warps, self.warps), 32), self.stages or tile.stages
        return Tile(doubled(tile.x, self.x), r, warps, tile.whole, stages)

    def count(self, many: int) -> int:
        """Another number of parts or programs."""
        return doubled(many, self.many)


USUAL = Tuning()
# What is tried for each kernel, besides the usual sizes.
OTHERS = (
    Tuning(x=1), Tuning(x=-1), Tuning(r=1), Tuning(r=-1), Tuning(warps=1), Tuning(warps=-1), Tuning(many=1),
    Tuning(many=-1), Tuning(x=1, warps=1), Tuning(x=-1, warps=-1), Tuning(x=2, warps=1), Tuning(r=1, warps=1),
    Tuning(x=1, r=-1), Tuning(x=2, r=-2), Tuning(x=-1, r=1), Tuning(x=2, r=-2, many=1), Tuning(x=1, r=-1, many=-1),
    Tuning(r=-1, many=1), Tuning(r=-2, many=1), Tuning(r=-1, many=2), Tuning(r=-1, warps=-1, many=1), Tuning(many=2),
    Tuning(x=-2), Tuning(stages=3), Tuning(r=-1, stages=3), Tuning(r=-2, stages=4), Tuning(r=-1, many=1, stages=3),
)  # fmt: skip


def doubled(n: int, times: int) -> int:
    """``n`` doubled so often, or halved, down to 1."""
    return n << times if times >= 0 else max(n >> -times, 1)


def power(n: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << max(n - 1, 0).bit_length()


def warps_for(elements: int, each: int = 8) -> int:
    """Warps for a tile: ``each`` elements a thread, four to sixteen warps, or fewer for what is smaller."""
    return min(max(power(elements // (32 * each)), 1), 16)


def pointwise(count: int | None, buffers: int = 1, work: int = 0, *, strided: bool = False) -> Tile:
    """A tile of one axis; a small one where many buffers are read and written at a time.

    Args:
        count: how many elements.
        buffers: that are read and written.
        work: cost of an element.
        strided: is memory read or written at places that are no neighbours, as of short rows?
    """
    if _are_many(buffers, work, strided):
        return Tile(128, 1, 1)
    if work > VERY_MUCH or strided:
        block = 256
        return Tile(block if count is None or count >= block * PROCESSORS * 2 else block // 2, 1, 4)
    block = POINTWISE
    if work > MUCH:
        return Tile(block // 2 if count is None or count >= block * PROCESSORS else 128, 1, 4)
    while count is not None and block > 128 and count < block * PROCESSORS * 2:
        block //= 2
    return Tile(block, 1, warps_for(block, 16 if block >= 1024 else 4))


def _are_many(buffers: int, work: int, strided: bool) -> bool:
    """Would a thread of many elements have more of these buffers in registers than it has registers?"""
    return buffers >= MANY and work <= VERY_MUCH and not strided


def long_rows(length: int, buffers: int = 1, work: int = 0, *, strided: bool = False) -> Tile:
    """A tile within a row; for the rest see ``pointwise``."""
    if _are_many(buffers, work, strided):
        return Tile(128, 1, 1)
    block = _row_block(length)
    return Tile(block, 1, warps_for(block, 2 if strided or work > VERY_MUCH else 4 if work > MUCH else 16))


def is_long(length: int) -> bool:
    """Can tiles be parts of one row without much of them being empty?"""
    block = _row_block(length)
    return length >= 512 and -(-length // block) * block <= length * 1.15


def _row_block(length: int) -> int:
    """Small blocks leave little of the last one empty, but cost a fifth more."""
    return min((1024, 2048, 512), key=lambda block: -(-length // block) * block * (1.2 if block == 512 else 1))


def is_row(length: int) -> bool:
    """Is a row short enough to be one of several in a tile, and little of its part of the tile empty?"""
    return 8 <= length <= 1024 and power(length) <= length * 1.34


def picked_rows(count: int | None, length: int) -> Tile:
    """A tile of whole rows, which lie anywhere; rows along ``r``."""
    x = power(length)
    r = max(POINTWISE // x, 1)
    while count is not None and r > 1 and count < r * PROCESSORS * 2:
        r //= 2
    return Tile(x, r, warps_for(x * r, 16 if x * r >= 1024 else 4))


def transposing(along: int | None, across: int | None) -> Tile:
    """Two axes, each of which is fastest for some of the memory, and their lengths: ``along`` x, and r.

    Where one is as short as the channels of a picture, more of the other is in a tile.
    """
    x, r = (size if n is None else min(size, power(n)) for n, size in ((along, 32), (across, 64)))
    if x < 32:
        r = _piece(across, min(TRANSPOSED // x, power(across or GUESS)))
    elif r < 64:
        x = _piece(along, min(TRANSPOSED // r, power(along or GUESS)))
    return Tile(x, r, warps_for(x * r))


def pairs(count: int | None, shared: float) -> int:
    """How many rows a program has at a time whose elements have this part of their work in common."""
    rows_ = PAIRED if shared >= SHARED_WORK else 1
    while count is not None and rows_ > 1 and count < rows_ * PROCESSORS * 4:
        rows_ //= 2
    return rows_


def _piece(length: int | None, most: int) -> int:
    """How much of a row at a time: little is done around large pieces, and little of a small last one is empty."""
    if length is None:
        return most
    sizes = [max(most >> n, 1) for n in range(3)]
    padded = {size: -(-length // size) * size * (1 + n / 16) for n, size in reversed([*enumerate(sizes)])}
    return min(sizes, key=padded.__getitem__)


def _crowd(held: int) -> int:
    """How many times fewer elements a thread has because each takes so many registers."""
    return min(power(-(-held * EACH // REGISTERS)), EACH)


def _laborious(work: int) -> int:
    """How many times fewer elements a thread has because so much is computed: code is written out for each."""
    return 1 if work <= VERY_MUCH else EACH // 2 if work <= 4 * VERY_MUCH else EACH


def _crowded(crowd: int) -> int:
    """Elements of a program whose threads have so many times fewer of them."""
    return CROWDED * EACH // crowd


def rows(
    count: int | None,
    length: int | None,
    across: bool,
    *,
    positions: bool = False,
    work: int = 0,
    shared: float = 0.0,
    held: int = 0,
) -> Tile:
    """A tile of rows and their elements.

    A thread loads one element at a time where rows do not begin at multiples of 16 bytes. Several warps would share a
    row then, and wait for each other at each reduction; a warp of its own for a few rows is twice as fast. So it is
    where positions are reduced, which takes several steps.

    Args:
        count: how many rows.
        length: of the longest.
        across: are neighbours in memory of different rows?
        positions: are positions reduced?
        work: cost of an element.
        shared: which part of it is the same for all rows.
        held: about how many registers an element takes.
    """
    whole = length is not None and power(length) <= (1024 if across else LONGEST_ROW)
    longest = power(length) if length is not None else 2 * LONGEST_ROW
    if across:
        x = min(power(count or GUESS), 64)
        r = min(longest, max(8192 // x, 1)) if not whole else longest
        x = max(min(x, 8192 // r), 1) if whole else x
        return Tile(x, r, warps_for(x * r, 16), whole)
    together = pairs(count, shared)
    if longest >= PIECE[0] and work > VERY_MUCH:  # what is computed of so many elements does not fit the registers
        whole = False
    if not whole or (together > 1 and longest * together > PIECE[0]):
        r, warps, crowd = _piece(length, PIECE[0] // together), PIECE[1], _crowd(held)
        if crowd > 1 and held * EACH > ROW_REGISTERS * 3 // 4:
            r = min(r, max(_crowded(crowd) // together, 1))
            warps = warps_for(together * r, EACH // crowd)
        return Tile(together, r, warps)
    r = longest
    alone = 1024 if positions else 512 if (length or 0) % VECTOR else 0  # elements of a program of one warp
    if r <= min(alone, 512) and work <= MUCH:
        return Tile(min(power(count or GUESS), alone // r), r, 1, whole)
    x = 1 if r >= 512 else min(power(count or GUESS), 1024 // r)
    each = 32 if r >= 4096 else 16 if r >= 2048 else 8
    while each > 1 and each * held > ROW_REGISTERS:
        each //= 2
    return Tile(x, r, warps_for(x * r, each), whole)


def narrow_rows(count: int | None, length: int | None) -> Tile | None:
    """A tile of rows of bytes, such as weights of 8 bits, if they are long and many.

    What is done with each byte takes the time. So several rows go together, which share the rest of the work, and a
    thread has 16 bytes of each. Products of a matrix of 2,048 x 5,632 such weights and a vector take 6.2 us on an H200,
    8.0 with a program for each row.
    """
    if length is None or length < NARROW or count is None or count < PROCESSORS * 4:
        return None
    x, r = PAIRED if count >= PROCESSORS * 8 else PAIRED // 2, 512 if length <= 2048 else 1024
    return Tile(x, r, max(x * r // NARROW, 1), stages=3)


def sorted_rows(count: int | None, length: int, across: bool) -> Tile:
    """A tile of rows that are put in order, as a whole.

    A warp of its own sorts in registers, eight elements a thread or sixteen; warps that share a row exchange it through
    shared memory. Four million numbers in rows of 128 take 0.048 ms on an H100, in rows of 512 0.081, by eight warps
    0.118. Code grows with what a thread has, and takes seconds to compile then.
    """
    r = power(length)
    if across:  # a thread has all of a row, if that is short
        x = min(power(count or GUESS), max(1024 // r, 32))
        return Tile(x, r, 1 if r <= 32 else warps_for(x * r), True)
    x = min(power(count or GUESS), max(256 // r, 1))
    return Tile(x, r, 1 if x * r <= 512 else 8, True)


def rows_at_a_time(size: int) -> int | None:
    """How many programs may go through long rows of so many bytes at a time, if they read these twice; None: any.

    Where the cache does not hold a row for each multiprocessor, more programs hide better that they wait for memory: on
    an H200 the logarithm of the softmax of 2,048 rows of 128,000 numbers takes 0.79 ms so, and 1.17 with 132 programs.
    """
    together = size * PROCESSORS
    if together * 8 < CACHE or together > CACHE:
        return None
    return PROCESSORS * (CACHE // together)


def split(
    kept: int | None, length: int | None, across: bool, heavy: bool, shared: float = 0.0, held: int = 0, work: int = 0
) -> tuple[Tile, int]:
    """A tile of results and what they are reduced from, and into how many parts that is cut.

    Args:
        kept: how many results.
        length: of what each is reduced from.
        across: are neighbours in memory of different results?
        heavy: is there much to compute for each element, and so much to hold in registers?
        shared: which part of that is the same for all results.
        held: about how many registers an element takes: sums, and what is loaded for them.
        work: cost of an element.
    """
    kept, length = kept or GUESS, length or GUESS * 8
    crowd = max(_crowd(held), _laborious(work))
    if across:
        x = min(power(kept), 64 if heavy else 128)
        r = max((4096 if heavy else 8192) // x, 1)
    else:
        x = pairs(kept, shared) if length >= 512 else 1
        r = _piece(length, PIECE[0] // x) if length >= PIECE[0] // x else power(length)
        if length < 512:
            x = min(power(kept), 1024 // r)
    if crowd > 1:
        r = max(min(r, _crowded(crowd) // x), 1)
    elif across and not heavy:
        while held * x * r > 32 * 4 * MOST_REGISTERS:
            r //= 2
    tiles = -(-kept // x)
    parts = min(max(PROCESSORS * 4 // tiles, 1), -(-length // (r * 2)))
    return Tile(x, r, 4 if across and not heavy else warps_for(x * r, EACH // crowd)), max(parts, 1)


def sweeps(rows_: int | None, length: int, read: int) -> tuple[Tile, int]:
    """A tile for programs that go over many rows each, and how many such programs there are.

    Args:
        rows_: how many rows.
        length: of the longest.
        read: bytes of an element that are loaded. What is on its way lies in shared memory; if several pieces of all
            that do not fit there, one row is loaded after the other.
    """
    r = power(length)
    programs = PROCESSORS * (2 if r > SWEPT else 4)
    x = max(SWEPT // r, 1) if rows_ is None or rows_ >= programs * 4 else 1
    x = min(x, 16)
    stages = STAGES["sweep"]
    while stages > 1 and x * r * read * (stages - 1) > SHARED // 2:
        stages -= 1
    warps = warps_for(x * r, 16 if x * r >= 2048 else 8)
    return Tile(x, r, warps, True, stages), min(programs, rows_ or programs)


def finishing(results: int | None, many: int) -> Tile:
    """A tile of results and all partial results of each."""
    s = power(many)
    results = power(results or GUESS)
    x = min(results, max(8192 // s, 1), power(max(results // PROCESSORS, 16)))
    return Tile(x, s, warps_for(x * s, 16))


def product(
    rows_: int | None, columns: int | None, depth: int | None, count: int = 1, tuning: Tuning = USUAL
) -> tuple[Tile, int, int]:
    """A tile of a matrix product: rows along ``r``; how much of what is summed is multiplied at a time; and stages.

    ``count``: how many matrices the left one is multiplied by.
    """
    if min(rows_ or GUESS, columns or GUESS) <= FEW_ROWS:
        x, r, deep, warps = _narrow(rows_ or GUESS, columns or GUESS, depth or GUESS, count)
    else:
        r = max(min(power(rows_ or GUESS), 128), 16)
        x = max(min(power(columns or GUESS), 128), 16)
        deep, warps = max(min(power(depth or GUESS), 64), 16), 8 if x * r >= 128 * 128 else 4
    x = min(max(doubled(x, tuning.x), 16), 256)
    r = min(max(doubled(r, tuning.r), 16), 256, TOTALS // x)
    deep, warps = max(doubled(deep, tuning.many), 16), doubled(warps, tuning.warps)
    stages = tuning.stages or max(2, min(4, SHARED // ((count * x + r) * deep * 2)))
    return Tile(x, r, min(warps, 16 if x * r < TOTALS else 8)), deep, stages


def _narrow(rows_: int, columns: int, depth: int, count: int) -> tuple[int, int, int, int]:
    """A matrix with few rows by one that is read once, as fast as memory gives it: many programs, much on its way."""
    long = max(rows_, columns)
    wide = 16 if long * count < 16 * PROCESSORS * 4 else 32
    most = 512 if wide == 16 else 128
    deep = next((d for d in (512, 256, 128) if d <= most and depth % d == 0), min(max(power(depth), 16), 128))
    while (16 + wide * count) * deep * 2 * 3 > SHARED:
        deep //= 2
    return (wide, 16, deep, 2) if rows_ <= columns else (16, wide, deep, 2)

"""The LLVM IR that computes a digest of memory (see ``digest.py``).

Sixteen bytes go into their lane by two rounds of AES, where the processor has an instruction for them: as fast as
memory is read. Elsewhere a word goes into its lane by two multiplications, as in MurmurHash3's ``fmix64``. Both are
bijections of a lane, so that one changed word always changes its lane (and the digest, unless 64 bits meet by accident,
where lanes have 128), and after both, not after one multiplication, flips of the signs of several numbers do not cancel
each other.
"""

from __future__ import annotations

import ctypes

from jitney_llvm_cpu.target import Target

BLOCK = 1 << 15
STRIDE = 256  # bytes of an iteration: four vectors of eight lanes
GRAIN = 8  # blocks below which no second thread is started
PRIME = 0x9E3779B97F4A7C15
SECOND = 0xC4CEB9FE1A85EC53
FINAL = 0xFF51AFD7ED558CCD
SIGNED = ctypes.c_int64

_AES = {16: "llvm.x86.aesni.aesenc", 32: "llvm.x86.aesni.aesenc.256", 64: "llvm.x86.aesni.aesenc.512"}
_LANES = 8
_CHAINS = STRIDE // (8 * _LANES)


def seeds() -> list[int]:
    """What the lanes begin with, an odd number each."""
    return [(PRIME * (2 * lane + 3) | 1) & (2**64 - 1) for lane in range(_LANES * _CHAINS)]


def aes_bytes(target: Target) -> int:
    """The bytes that one instruction puts through a round of AES; 0 where there is none."""
    if not target.is_x86 or not target.has("aes"):
        return 0
    if not target.has("vaes"):
        return 16
    return 64 if target.vector_bytes == 64 else 32


def _signed(number: int) -> int:
    return SIGNED(number).value


def _vector(numbers: list[int]) -> str:
    return f"<{', '.join(f'i64 {_signed(n)}' for n in numbers)}>"


def _mixed(kind: str, name: str, old: str, word: str, prime: str) -> list[str]:
    """``name = mix(mix((old ^ word) * prime, 32) * SECOND, 29)``, where ``mix(x, n)`` is ``x ^ x >> n``."""
    first, second, times = "32", "29", str(_signed(SECOND))
    if kind.startswith("<"):
        first, second, times = _vector([32] * _LANES), _vector([29] * _LANES), _vector([SECOND] * _LANES)
    return [
        f"{name}.x = xor {kind} {old}, {word}",
        f"{name}.m = mul {kind} {name}.x, {prime}",
        f"{name}.s = lshr {kind} {name}.m, {first}",
        f"{name}.y = xor {kind} {name}.m, {name}.s",
        f"{name}.n = mul {kind} {name}.y, {times}",
        f"{name}.t = lshr {kind} {name}.n, {second}",
        f"{name} = xor {kind} {name}.n, {name}.t",
    ]


def _ciphered(name: str, old: str, word: str, width: int) -> list[str]:
    """``name = round(round(old ^ word, PRIME), SECOND)``, where ``round`` is AES's of each 16 bytes."""
    kind, part, count = f"<{_LANES} x i64>", f"<{width // 8} x i64>", 8 * _LANES // width
    lines = [f"{name}.x = xor {kind} {old}, {word}"]
    for n in range(count):
        places = ", ".join(f"i32 {n * width // 8 + at}" for at in range(width // 8))
        piece = f"{name}.p{n}"
        lines.append(f"{piece} = shufflevector {kind} {name}.x, {kind} poison, <{width // 8} x i32> <{places}>")
        for number, (before, key) in enumerate(((piece, PRIME), (f"{piece}.r0", SECOND))):
            keys = f"<{', '.join([f'i64 {_signed(key)}'] * (width // 8))}>"
            lines.append(f"{piece}.r{number} = call {part} @{_AES[width]}({part} {before}, {part} {keys})")
    pieces = [(f"{name}.p{n}.r1", width // 8) for n in range(count)]
    while len(pieces) > 1:
        joined = []
        for n, ((first, size), (second, _)) in enumerate(zip(pieces[::2], pieces[1::2], strict=True)):
            places, made = ", ".join(f"i32 {at}" for at in range(2 * size)), f"{name}.j{2 * size}.{n}"
            halves = f"<{size} x i64> {first}, <{size} x i64> {second}"
            lines.append(f"{made} = shufflevector {halves}, <{2 * size} x i32> <{places}>")
            joined.append((made, 2 * size))
        pieces = joined
    return [*lines, f"{name} = xor {kind} {pieces[0][0]}, zeroinitializer"]


def _loop(name: str, kind: str, start: tuple[str, str], old: str, stop: str, then: str) -> str:
    """A loop that mixes in words of one integer type.

    Args:
        name: its label, and what its names begin with.
        kind: the type.
        start: the place of the first word, and the label from which the loop is entered.
        old: what is mixed into.
        stop: words begin before it.
        then: the label of what comes after it.
    """
    place, before = start
    lines = [
        f"%{name}.at = phi i64 [ {place}, %{before} ], [ %{name}.at.next, %{name}.body ]",
        f"%{name}.old = phi i64 [ {old}, %{before} ], [ %{name}.next, %{name}.body ]",
        f"%{name}.more = icmp slt i64 %{name}.at, {stop}",
        f"br i1 %{name}.more, label %{name}.body, label %{then}",
    ]
    body = [
        f"%{name}.p = getelementptr i8, ptr %start, i64 %{name}.at",
        *_loaded(name, kind),
        *_mixed("i64", f"%{name}.next", f"%{name}.old", f"%{name}.word", str(_signed(PRIME))),
        f"%{name}.at.next = add i64 %{name}.at, {int(kind[1:]) // 8}",
        f"br label %{name}",
    ]
    return "\n  ".join([f"{name}:", *lines]) + f"\n{name}.body:\n  " + "\n  ".join(body)


def _loaded(name: str, kind: str) -> list[str]:
    """``name.word``, 64 bits wide."""
    if kind == "i64":
        return [f"%{name}.word = load i64, ptr %{name}.p, align 1"]
    return [
        f"%{name}.narrow = load {kind}, ptr %{name}.p, align 1",
        f"%{name}.word = zext {kind} %{name}.narrow to i64",
    ]


def text(parallel: str, aes: int) -> str:
    """LLVM IR of ``i64 @jitney_digest(ptr data, i64 bytes, i64 threads)``; ``aes``: see ``aes_bytes``."""
    kind = f"<{_LANES} x i64>"
    first = seeds()
    begin = [_vector(first[c * _LANES : (c + 1) * _LANES]) for c in range(_CHAINS)]
    prime, final = _vector([PRIME] * _LANES), _vector([FINAL] * _LANES)
    phis = [f"%h{c} = phi {kind} [ {begin[c]}, %block ], [ %n{c}, %long ]" for c in range(_CHAINS)]
    body, ends, joins = [], [], []
    for c in range(_CHAINS):
        body += [
            f"%p{c} = getelementptr i8, ptr %at, i64 {c * 8 * _LANES}",
            f"%w{c} = load {kind}, ptr %p{c}, align 1",
            *(
                _ciphered(f"%n{c}", f"%h{c}", f"%w{c}", aes)
                if aes
                else _mixed(kind, f"%n{c}", f"%h{c}", f"%w{c}", prime)
            ),
        ]
        ends.append(f"%e{c} = phi {kind} [ {begin[c]}, %block ], [ %n{c}, %long ]")
        joins += [
            *_mixed(kind, f"%f{c}", f"%e{c}", _vector([c] * _LANES), final),
            f"%o{c} = mul {kind} %f{c}, {begin[c]}",
            f"%j{c} = add {kind} {'zeroinitializer' if c == 0 else f'%j{c - 1}'}, %o{c}",
        ]
    fields = {
        "PRIME": str(_signed(PRIME)),
        "FINAL": str(_signed(FINAL)),
        "BLOCK": str(BLOCK),
        "STRIDE": str(STRIDE),
        "GRAIN": str(GRAIN),
        "PHIS": "\n  ".join(phis),
        "BODY": "\n  ".join(body),
        "ENDS": "\n  ".join(ends),
        "JOINS": "\n  ".join(joins),
        "TOTAL": f"%j{_CHAINS - 1}",
        "TAIL": _loop("tail", "i64", ("%whole", "joined"), "%joined.sum", "%words", "byte"),
        "BYTES": _loop("byte", "i8", ("%tail.at", "tail"), "%tail.old", "%size", "done"),
        "LAST": "\n  ".join(_mixed("i64", "%block.one", "%byte.end", "%b", str(_signed(FINAL)))),
        "AGAIN": "\n  ".join(_mixed("i64", "%block.two", "%block.one", "0", str(_signed(PRIME)))),
    }
    code = _BODY
    for name, value in fields.items():
        code = code.replace(f"@{name}@", value)
    part = f"<{aes // 8} x i64>"
    return parallel + code + (f"declare {part} @{_AES[aes]}({part}, {part})\n" if aes else "")


_BODY = """
define internal void @jitney_digest_blocks(ptr %context, i64 %begin, i64 %stop, i64 %thread) {
entry:
  %data.p = getelementptr {ptr, i64, ptr}, ptr %context, i32 0, i32 0
  %bytes.p = getelementptr {ptr, i64, ptr}, ptr %context, i32 0, i32 1
  %out.p = getelementptr {ptr, i64, ptr}, ptr %context, i32 0, i32 2
  %data = load ptr, ptr %data.p
  %bytes = load i64, ptr %bytes.p
  %out = load ptr, ptr %out.p
  br label %next
next:
  %b = phi i64 [ %begin, %entry ], [ %b.next, %done ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %done ]
  %more = icmp slt i64 %b, %stop
  br i1 %more, label %block, label %end
block:
  %from = mul i64 %b, @BLOCK@
  %start = getelementptr i8, ptr %data, i64 %from
  %left = sub i64 %bytes, %from
  %small = icmp slt i64 %left, @BLOCK@
  %size = select i1 %small, i64 %left, i64 @BLOCK@
  %rest = urem i64 %size, @STRIDE@
  %whole = sub i64 %size, %rest
  %some = icmp sgt i64 %whole, 0
  br i1 %some, label %long, label %joined
long:
  %i = phi i64 [ 0, %block ], [ %i.next, %long ]
  @PHIS@
  %at = getelementptr i8, ptr %start, i64 %i
  @BODY@
  %i.next = add i64 %i, @STRIDE@
  %again = icmp slt i64 %i.next, %whole
  br i1 %again, label %long, label %joined
joined:
  @ENDS@
  @JOINS@
  %joined.sum = call i64 @llvm.vector.reduce.add.v8i64(<8 x i64> @TOTAL@)
  %words = sub i64 %size, 7
  br label %tail
@TAIL@
@BYTES@
done:
  %byte.end = phi i64 [ %byte.old, %byte ]
  @LAST@
  @AGAIN@
  %sum.next = add i64 %sum, %block.two
  %b.next = add i64 %b, 1
  br label %next
end:
  %old = atomicrmw add ptr %out, i64 %sum monotonic
  ret void
}

define i64 @jitney_digest(ptr %data, i64 %bytes, i64 %threads) {
  %context = alloca {ptr, i64, ptr}
  %out = alloca i64
  store i64 0, ptr %out
  %data.p = getelementptr {ptr, i64, ptr}, ptr %context, i32 0, i32 0
  %bytes.p = getelementptr {ptr, i64, ptr}, ptr %context, i32 0, i32 1
  %out.p = getelementptr {ptr, i64, ptr}, ptr %context, i32 0, i32 2
  store ptr %data, ptr %data.p
  store i64 %bytes, ptr %bytes.p
  store ptr %out, ptr %out.p
  %up = add i64 %bytes, @BLOCK@
  %above = sub i64 %up, 1
  %blocks = udiv i64 %above, @BLOCK@
  call void @jitney_parallel(ptr @jitney_digest_blocks, ptr %context, i64 %blocks, i64 @GRAIN@, i64 %threads)
  %result = load i64, ptr %out
  ret i64 %result
}

declare i64 @llvm.vector.reduce.add.v8i64(<8 x i64>)
"""

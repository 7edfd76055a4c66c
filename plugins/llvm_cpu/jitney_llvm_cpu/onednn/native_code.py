"""The LLVM IR of convolutions that native code calls (see ``native.py``)."""

from __future__ import annotations

import torch

from jitney_llvm_cpu import makers, symbols
from jitney_llvm_cpu.onednn import digest_code
from jitney_llvm_cpu.shims import constant, dtype_code
from jitney_llvm_cpu.target import Target

LAYOUTS = 4  # rows of a table
DIMS = 5  # of images and weights, at most
GRAIN = 1 << 14  # elements of weights below which no second thread is started
OPERATOR = "aoti_torch_cpu_mkldnn__convolution_pointwise"


def plain(parallel: str) -> str:
    """``i32 @jitney_convolution(i64 threads, ptr data, ptr desc, ptr made)``; see ``makers.ir``.

    torch has weights in the order of the images, if these have the channels last and the window several elements; it
    gets them so by a copy of strides, 2 to 10 times as slow as this one. ``parallel``: see ``Threads.ir``.
    """
    return makers.ir(frozenset({"convolution"})) + parallel + _filled(_PLAIN)


def packed(parallel: str, target: Target) -> str | None:
    """The same and ``jitney_packed(state, threads, data, desc, made)``; None where torch does not export it."""
    if symbols.find(OPERATOR) is None:
        return None
    rest = digest_code.text("", digest_code.aes_bytes(target))
    return plain(parallel) + rest + _filled(_PACKED)


def _filled(text: str) -> str:
    parts = {
        "DECODE": _DECODE.strip(),
        "DEVICE": str(constant("aoti_torch_device_type_cpu")),
        "FLOAT": str(dtype_code(torch.float32)),
        "BFLOAT": str(dtype_code(torch.bfloat16)),
        "HALF": str(dtype_code(torch.float16)),
        "OPERATOR": OPERATOR,
        "LAYOUTS": str(LAYOUTS),
        "DIMS": str(DIMS),
        "GRAIN": str(GRAIN),
    }
    for word, replacement in parts.items():
        text = text.replace(f"@{word}@", replacement)
    return text


# The numbers of a convolution, and where the description of its tensors begins.
_DECODE = """
  %n0 = load i64, ptr %desc
  %stride = getelementptr i64, ptr %desc, i64 1
  %n1.p = getelementptr i64, ptr %stride, i64 %n0
  %n1 = load i64, ptr %n1.p
  %padding = getelementptr i64, ptr %n1.p, i64 1
  %n2.p = getelementptr i64, ptr %padding, i64 %n1
  %n2 = load i64, ptr %n2.p
  %dilation = getelementptr i64, ptr %n2.p, i64 1
  %transposed.p = getelementptr i64, ptr %dilation, i64 %n2
  %n3.p = getelementptr i64, ptr %transposed.p, i64 1
  %n3 = load i64, ptr %n3.p
  %output = getelementptr i64, ptr %n3.p, i64 1
  %groups.p = getelementptr i64, ptr %output, i64 %n3
  %groups = load i64, ptr %groups.p
  %tensors = getelementptr i64, ptr %groups.p, i64 1
"""

_PLAIN = """
%jitney.copy = type { ptr, ptr, i64, i64 }

; Filters from channels first to channels last: elements of 4 bytes and of 2.
COPIES
define i32 @jitney_convolution(i64 %threads, ptr %data, ptr %desc, ptr %made) {
entry:
  %context = alloca %jitney.copy
  %new.p = alloca ptr
  %address.p = alloca ptr
  %given = alloca [3 x ptr]
  @DECODE@
  %dtype = load i64, ptr %tensors
  %is.float = icmp eq i64 %dtype, @FLOAT@
  %is.bfloat = icmp eq i64 %dtype, @BFLOAT@
  %is.half = icmp eq i64 %dtype, @HALF@
  %is.short = or i1 %is.bfloat, %is.half
  %is.taken = or i1 %is.float, %is.short
  %rank.p = getelementptr i64, ptr %tensors, i64 1
  %rank = load i64, ptr %rank.p
  %is.image = icmp eq i64 %rank, 4
  %looks = and i1 %is.taken, %is.image
  br i1 %looks, label %look, label %plain
look:
  %x.channels.p = getelementptr i64, ptr %tensors, i64 3
  %x.step.p = getelementptr i64, ptr %tensors, i64 7
  %x.column.p = getelementptr i64, ptr %tensors, i64 9
  %w = getelementptr i64, ptr %tensors, i64 10
  %w.sizes = getelementptr i64, ptr %w, i64 2
  %w.strides = getelementptr i64, ptr %w, i64 6
  %size.1.p = getelementptr i64, ptr %w, i64 3
  %size.2.p = getelementptr i64, ptr %w, i64 4
  %size.3.p = getelementptr i64, ptr %w, i64 5
  %stride.1.p = getelementptr i64, ptr %w, i64 7
  %stride.2.p = getelementptr i64, ptr %w, i64 8
  %stride.3.p = getelementptr i64, ptr %w, i64 9
  %x.channels = load i64, ptr %x.channels.p
  %x.step = load i64, ptr %x.step.p
  %x.column = load i64, ptr %x.column.p
  %filters = load i64, ptr %w.sizes
  %channels = load i64, ptr %size.1.p
  %rows = load i64, ptr %size.2.p
  %columns = load i64, ptr %size.3.p
  %stride.0 = load i64, ptr %w.strides
  %stride.1 = load i64, ptr %stride.1.p
  %stride.2 = load i64, ptr %stride.2.p
  %stride.3 = load i64, ptr %stride.3.p
  %window = mul i64 %rows, %columns
  %filter = mul i64 %window, %channels
  %y0 = icmp eq i64 %x.step, 1
  %y1 = icmp eq i64 %x.column, %x.channels
  %y2 = icmp sgt i64 %channels, 1
  %y3 = icmp sgt i64 %window, 1
  %y4 = icmp eq i64 %stride.3, 1
  %y5 = icmp eq i64 %stride.2, %columns
  %y6 = icmp eq i64 %stride.1, %window
  %y7 = icmp eq i64 %stride.0, %filter
  %y8 = icmp sgt i64 %filters, 0
  %a1 = and i1 %y0, %y1
  %a2 = and i1 %y2, %y3
  %a3 = and i1 %y4, %y5
  %a4 = and i1 %y6, %y7
  %a5 = and i1 %a1, %a2
  %a6 = and i1 %a3, %a4
  %a7 = and i1 %a5, %a6
  %a8 = and i1 %a7, %y8
  br i1 %a8, label %order, label %plain
plain:
  %code.plain = call i32 @jitney_make_convolution(ptr %data, ptr %desc, ptr %made)
  ret i32 %code.plain
order:
  ; The table again, with other strides of the weights.
  %first = ptrtoint ptr %desc to i64
  %at = ptrtoint ptr %tensors to i64
  %before = sub i64 %at, %first
  %bias.rank.p = getelementptr i64, ptr %w, i64 11
  %bias.rank = load i64, ptr %bias.rank.p
  %bias.twice = mul i64 %bias.rank, 2
  %rest = add i64 %bias.twice, 28
  %rest.bytes = mul i64 %rest, 8
  %bytes = add i64 %before, %rest.bytes
  %table = alloca i8, i64 %bytes, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %table, ptr align 8 %desc, i64 %bytes, i1 false)
  %to.strides = getelementptr i8, ptr %table, i64 %before
  %new.0.p = getelementptr i64, ptr %to.strides, i64 16
  %new.1.p = getelementptr i64, ptr %to.strides, i64 17
  %new.2.p = getelementptr i64, ptr %to.strides, i64 18
  %new.3.p = getelementptr i64, ptr %to.strides, i64 19
  %row = mul i64 %columns, %channels
  store i64 1, ptr %new.1.p
  store i64 %row, ptr %new.2.p
  store i64 %channels, ptr %new.3.p
  %dtype.32 = trunc i64 %dtype to i32
  %c0 = call i32 @aoti_torch_empty_strided(i64 4, ptr %w.sizes, ptr %new.0.p, i32 %dtype.32, i32 @DEVICE@, i32 0,
    ptr %new.p)
  %room = icmp eq i32 %c0, 0
  br i1 %room, label %copy, label %failed
failed:
  ret i32 %c0
copy:
  %new = load ptr, ptr %new.p
  %c1 = call i32 @aoti_torch_get_data_ptr(ptr %new, ptr %address.p)
  %to = load ptr, ptr %address.p
  %from.p = getelementptr ptr, ptr %data, i64 1
  %from = load ptr, ptr %from.p
  %context.to = getelementptr %jitney.copy, ptr %context, i32 0, i32 1
  %context.channels = getelementptr %jitney.copy, ptr %context, i32 0, i32 2
  %context.window = getelementptr %jitney.copy, ptr %context, i32 0, i32 3
  store ptr %from, ptr %context
  store ptr %to, ptr %context.to
  store i64 %channels, ptr %context.channels
  store i64 %window, ptr %context.window
  %several = udiv i64 @GRAIN@, %filter
  %grain = add i64 %several, 1
  %body = select i1 %is.float, ptr @jitney_copy_i32, ptr @jitney_copy_i16
  call void @jitney_parallel(ptr %body, ptr %context, i64 %filters, i64 %grain, i64 %threads)
  %x.data = load ptr, ptr %data
  %bias.data.p = getelementptr ptr, ptr %data, i64 2
  %bias.data = load ptr, ptr %bias.data.p
  %given.1 = getelementptr ptr, ptr %given, i64 1
  %given.2 = getelementptr ptr, ptr %given, i64 2
  store ptr %x.data, ptr %given
  store ptr %to, ptr %given.1
  store ptr %bias.data, ptr %given.2
  %code = call i32 @jitney_make_convolution(ptr %given, ptr %table, ptr %made)
  %c2 = call i32 @aoti_torch_delete_tensor_object(ptr %new)
  ret i32 %code
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_COPY = """
define internal void @jitney_copy_TYPE(ptr %context, i64 %begin, i64 %stop, i64 %thread) {
entry:
  %to.p = getelementptr %jitney.copy, ptr %context, i32 0, i32 1
  %channels.p = getelementptr %jitney.copy, ptr %context, i32 0, i32 2
  %window.p = getelementptr %jitney.copy, ptr %context, i32 0, i32 3
  %from.all = load ptr, ptr %context
  %to.all = load ptr, ptr %to.p
  %channels = load i64, ptr %channels.p
  %window = load i64, ptr %window.p
  %filter = mul i64 %channels, %window
  br label %filters
filters:
  %f = phi i64 [ %begin, %entry ], [ %f.next, %filters.next ]
  %more = icmp slt i64 %f, %stop
  br i1 %more, label %one, label %end
one:
  %start = mul i64 %f, %filter
  %from = getelementptr TYPE, ptr %from.all, i64 %start
  %to = getelementptr TYPE, ptr %to.all, i64 %start
  br label %elements
elements:
  %e = phi i64 [ 0, %one ], [ %e.next, %elements.next ]
  %from.e = getelementptr TYPE, ptr %from, i64 %e
  %to.first = mul i64 %e, %channels
  %to.e = getelementptr TYPE, ptr %to, i64 %to.first
  br label %channel
channel:
  %c = phi i64 [ 0, %elements ], [ %c.next, %channel ]
  %from.at = phi ptr [ %from.e, %elements ], [ %from.next, %channel ]
  %value = load TYPE, ptr %from.at
  %to.at = getelementptr TYPE, ptr %to.e, i64 %c
  store TYPE %value, ptr %to.at
  %from.next = getelementptr TYPE, ptr %from.at, i64 %window
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %channels
  br i1 %c.more, label %channel, label %elements.next
elements.next:
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %window
  br i1 %e.more, label %elements, label %filters.next
filters.next:
  %f.next = add i64 %f, 1
  br label %filters
end:
  ret void
}
"""
_PLAIN = _PLAIN.replace("COPIES", "".join(_COPY.replace("TYPE", kind) for kind in ("i32", "i16")))

_PACKED = """
%jitney.state = type { ptr, i64, i64, ptr }
%jitney.row = type { i64, i64, ptr, [@DIMS@ x i64] }
%jitney.table = type { i64, i64, i64, i64, [@LAYOUTS@ x %jitney.row] }

declare i32 @@OPERATOR@(ptr, ptr, ptr, ptr, i64, ptr, i64, ptr, i64, i64, ptr, ptr, i64, ptr, ptr)

define ptr @jitney_publish(ptr %state, ptr %table) {
  %old = atomicrmw xchg ptr %state, ptr %table seq_cst
  ret ptr %old
}

define i64 @jitney_users(ptr %state) {
  %users.p = getelementptr %jitney.state, ptr %state, i32 0, i32 1
  %users = load atomic i64, ptr %users.p seq_cst, align 8
  ret i64 %users
}

; Was there a call with packed weights since the last question?
define i64 @jitney_hits(ptr %state) {
  %hits.p = getelementptr %jitney.state, ptr %state, i32 0, i32 2
  %hits = atomicrmw xchg ptr %hits.p, i64 0 seq_cst
  ret i64 %hits
}

define i32 @jitney_packed(ptr %state, i64 %threads, ptr %data, ptr %desc, ptr %made) {
entry:
  @DECODE@
  %rank.p = getelementptr i64, ptr %tensors, i64 1
  %rank = load i64, ptr %rank.p
  %sizes = getelementptr i64, ptr %tensors, i64 2
  %users.p = getelementptr %jitney.state, ptr %state, i32 0, i32 1
  %u0 = atomicrmw add ptr %users.p, i64 1 seq_cst
  %table = load atomic ptr, ptr %state seq_cst, align 8
  %digest.p = getelementptr %jitney.table, ptr %table, i32 0, i32 0
  %bytes.p = getelementptr %jitney.table, ptr %table, i32 0, i32 1
  %otherwise.p = getelementptr %jitney.table, ptr %table, i32 0, i32 2
  %count.p = getelementptr %jitney.table, ptr %table, i32 0, i32 3
  %otherwise = load i64, ptr %otherwise.p
  %count = load i64, ptr %count.p
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %other ]
  %more = icmp ult i64 %r, %count
  br i1 %more, label %row, label %decide
row:
  %row.threads.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 0
  %row.threads = load i64, ptr %row.threads.p
  %same.threads = icmp eq i64 %row.threads, %threads
  br i1 %same.threads, label %dims, label %other
dims:
  %d = phi i64 [ 0, %row ], [ %d.next, %equal ]
  %dims.more = icmp ult i64 %d, %rank
  br i1 %dims.more, label %dim, label %found
dim:
  %row.size.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 3, i64 %d
  %row.size = load i64, ptr %row.size.p
  %size.p = getelementptr i64, ptr %sizes, i64 %d
  %size = load i64, ptr %size.p
  %same.size = icmp eq i64 %row.size, %size
  br i1 %same.size, label %equal, label %other
equal:
  %d.next = add i64 %d, 1
  br label %dims
other:
  %r.next = add i64 %r, 1
  br label %rows
found:
  %row.mode.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 1
  %row.mode = load i64, ptr %row.mode.p
  %row.handle.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 2
  %row.handle = load ptr, ptr %row.handle.p
  br label %decide
decide:
  %mode = phi i64 [ %otherwise, %rows ], [ %row.mode, %found ]
  %packed = phi ptr [ null, %rows ], [ %row.handle, %found ]
  switch i64 %mode, label %ask [ i64 1, label %plain  i64 2, label %compare ]
plain:
  %u1 = atomicrmw sub ptr %users.p, i64 1 seq_cst
  %code.plain = call i32 @jitney_convolution(i64 %threads, ptr %data, ptr %desc, ptr %made)
  ret i32 %code.plain
compare:
  %digest = load i64, ptr %digest.p
  %bytes = load i64, ptr %bytes.p
  %weight.p = getelementptr ptr, ptr %data, i64 1
  %weight = load ptr, ptr %weight.p
  %now = call i64 @jitney_digest(ptr %weight, i64 %bytes, i64 %threads)
  %same = icmp eq i64 %now, %digest
  br i1 %same, label %run, label %ask
run:
  %code.run = call i32 @jitney_run_packed(ptr %data, ptr %tensors, ptr %packed, ptr %padding, i64 %n1, ptr %stride,
    i64 %n0, ptr %dilation, i64 %n2, i64 %groups, ptr %made)
  %hits.p = getelementptr %jitney.state, ptr %state, i32 0, i32 2
  store atomic i64 1, ptr %hits.p seq_cst, align 8
  %u2 = atomicrmw sub ptr %users.p, i64 1 seq_cst
  ret i32 %code.run
ask:
  %u3 = atomicrmw sub ptr %users.p, i64 1 seq_cst
  %callback.p = getelementptr %jitney.state, ptr %state, i32 0, i32 3
  %callback = load ptr, ptr %callback.p
  %nobody = icmp eq ptr %callback, null
  br i1 %nobody, label %unanswered, label %call
unanswered:
  ret i32 2
call:
  %code.ask = call i32 %callback(ptr %data, ptr %desc, ptr %made, i64 %threads)
  ret i32 %code.ask
}

define internal i32 @jitney_run_packed(ptr %data, ptr %tensors, ptr %packed, ptr %padding, i64 %n1, ptr %stride,
    i64 %n0, ptr %dilation, i64 %n2, i64 %groups, ptr %made) {
entry:
  %handles = alloca [3 x ptr]
  %after.p = alloca ptr
  %result.p = alloca ptr
  store ptr null, ptr %result.p
  %failed = call i32 @jitney_tensors(ptr %data, ptr %tensors, i64 3, ptr %handles, ptr %after.p)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %run, label %end
run:
  %x = load ptr, ptr %handles
  %bias.p = getelementptr ptr, ptr %handles, i64 2
  %bias = load ptr, ptr %bias.p
  %none = icmp eq ptr %bias, null
  %given = select i1 %none, ptr null, ptr %bias.p
  %code = call i32 @@OPERATOR@(ptr %x, ptr %packed, ptr %given, ptr %padding, i64 %n1, ptr %stride, i64 %n0,
    ptr %dilation, i64 %n2, i64 %groups, ptr @jitney.none, ptr null, i64 0, ptr @jitney.algorithm, ptr %result.p)
  call void @jitney_delete(ptr %handles, i64 3, i64 1)
  %done = icmp eq i32 %code, 0
  br i1 %done, label %adopt, label %refused
adopt:
  %result = load ptr, ptr %result.p
  %after = load ptr, ptr %after.p
  %adopted = call i32 @jitney_adopt(ptr %result, ptr %after, ptr %made)
  ret i32 %adopted
refused:
  ret i32 %code
end:
  ret i32 %failed
}
"""

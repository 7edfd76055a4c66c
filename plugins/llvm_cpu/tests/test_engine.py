from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import threading

import pytest

from jitney.cache.store import DiskCache
from jitney_llvm_cpu import engine as engine_module
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.target import Target

ADD = """
define internal i64 @inner(i64 %a, i64 %b) alwaysinline {
  %s = add i64 %a, %b
  ret i64 %s
}
define i64 @sum_of(i64 %a, i64 %b) {
  %s = call i64 @inner(i64 %a, i64 %b)
  %t = add i64 %s, ADDED
  ret i64 %t
}
"""
LOOP = """
declare float @cosf(float)
declare <4 x float> @llvm.sqrt.v4f32(<4 x float>)

define void @"cosines of"(ptr noalias %to, ptr noalias %from, i64 %n) {
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %from, i64 %i
  %q = getelementptr float, ptr %to, i64 %i
  %x = load float, ptr %p
  %y = call float @cosf(float %x)
  store float %y, ptr %q
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def adder(number):
    return ADD.replace("ADDED", str(number))


def call(library, *values):
    return library.function("sum_of", ctypes.c_int64, ctypes.c_int64, result=ctypes.c_int64)(*values)


@pytest.mark.parametrize("pipeline", ["light", "full"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_text_becomes_a_function(pipeline, level):
    library = Engine(Target.host(), pipeline=pipeline, level=level).compile(adder(3))
    assert call(library, 20, 100) == 123
    assert not library.from_cache


def test_libraries_of_one_engine_do_not_meet():
    engine = Engine(Target.host())
    libraries = [engine.compile(adder(k)) for k in range(5)]
    assert [call(library, 0, 0) for library in libraries] == list(range(5))


def test_functions_of_the_process_are_called_and_names_may_be_odd():
    library = Engine(Target.host()).compile(LOOP)
    assert library.names == ("cosines of",)
    source, result = (ctypes.c_float * 3)(0.0, 1.0, 2.0), (ctypes.c_float * 3)()
    function = library.function("cosines of", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function(result, source, 3)
    assert list(result) == pytest.approx([1.0, 0.5403023, -0.4161468])


def test_internal_functions_have_no_address():
    library = Engine(Target.host()).compile(adder(0))
    assert library.address("sum_of") != 0
    with pytest.raises(KeyError, match=r"'inner'.*sum_of"):
        library.address("inner")


@pytest.mark.parametrize("text", ["define void @f() { ret i32 0 }", "nonsense", "define void @f() { br label %a }"])
def test_wrong_text_is_an_error(text):
    with pytest.raises(RuntimeError, match="IR"):
        Engine(Target.host()).compile(text)


def test_a_function_that_nobody_has_is_named():
    text = (
        "declare void @jitney_nobody_has_this()\ndefine void @f() {\n call void @jitney_nobody_has_this()\n ret void\n}"
    )
    with pytest.raises(LookupError, match="jitney_nobody_has_this"):
        Engine(Target.host()).compile(text)


def test_a_function_keeps_its_library_alive():
    function = (
        Engine(Target.host())
        .compile(adder(1))
        .function("sum_of", ctypes.c_int64, ctypes.c_int64, result=ctypes.c_int64)
    )
    gc.collect()
    assert function(1, 1) == 3


def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_dropped_libraries_give_their_memory_back():
    engine = Engine(Target.host())
    table = "@t{k} = internal constant [100000 x i64] [i64 {k}, " + ", ".join(["i64 7"] * 99_999) + "]\n"
    code = "define i64 @sum_of(i64 %a, i64 %b) {{\n %p = getelementptr i64, ptr @t{k}, i64 %a\n"
    code += " %v = load i64, ptr %p\n ret i64 %v\n}}"

    def make(k):
        assert call(engine.compile(table.format(k=k) + code.format(k=k)), 0, 0) == k

    make(0)
    make(1)
    before = resident_kib()
    for k in range(20):
        make(k)
    gc.collect()
    assert resident_kib() - before < 10 * 800  # 20 libraries of 800 KiB each, all dropped


def test_warm_starts_neither_parse_nor_optimise(tmp_path, monkeypatch):
    cold = Engine(Target.host(), DiskCache(tmp_path)).compile(adder(5))
    assert not cold.from_cache

    def refuse(*arguments):
        raise AssertionError("LLVM was asked to parse")

    monkeypatch.setattr(engine_module.llvm, "parse_assembly", refuse)
    warm = Engine(Target.host(), DiskCache(tmp_path)).compile(adder(5))
    assert warm.from_cache and call(warm, 1, 1) == call(cold, 1, 1) == 7
    with pytest.raises(AssertionError, match="parse"):
        Engine(Target.host(), DiskCache(tmp_path)).compile(adder(6))


def test_keys_tell_apart_what_matters():
    target = Target.host()
    base = Engine(target)
    other = Target(target.triple, "x86-64" if target.is_x86 else "generic", target.features, 16)
    keys = {
        base.key("a", "b"),
        base.key("ab", ""),
        base.key("a", ""),
        Engine(target, level=3).key("a", ""),
        Engine(target, pipeline="full").key("a", ""),
        Engine(other).key("a", ""),
    }
    assert len(keys) == 6
    assert Engine(target, DiskCache).key("a") == base.key("a")


@pytest.mark.parametrize("damage", [b"", b"not json\ncode", b'{"defines": ["sum_of"], "needs": []}\nno object code'])
def test_an_entry_that_is_not_object_code_is_made_again(tmp_path, damage, capfd):
    kept = DiskCache(tmp_path)
    engine = Engine(Target.host(), kept)
    kept.store(engine.key(adder(8)), damage)
    library = engine.compile(adder(8))
    assert not library.from_cache and call(library, 1, 1) == 10
    assert engine.compile(adder(8)).from_cache


def test_dumps_show_each_stage_even_if_the_cache_has_it(tmp_path):
    kept = DiskCache(tmp_path)
    Engine(Target.host(), kept).compile(adder(5))
    dumped = {}
    library = Engine(Target.host(), kept, dump=dumped.__setitem__).compile(adder(5))
    assert call(library, 1, 1) == 7
    assert list(dumped) == ["llvm_ir", "llvm_ir_optimised", "assembly"]
    assert dumped["llvm_ir"] == adder(5)
    assert "call i64 @inner" not in dumped["llvm_ir_optimised"] and "add i64" in dumped["llvm_ir_optimised"]
    assert "sum_of:" in dumped["assembly"]


def test_threads_may_compile_at_once(tmp_path):
    engine = Engine(Target.host(), DiskCache(tmp_path))
    results = {}

    def work(k):
        results[k] = [call(engine.compile(adder(j)), k, 0) for j in range(6)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: [k + j for j in range(6)] for k in range(4)}


def child_compiles(queue, engine, library):
    queue.put((call(library, 1, 1), call(engine.compile(adder(77)), 0, 0)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_runs_and_compiles():
    engine = Engine(Target.host())
    library = engine.compile(adder(1))
    stop = threading.Event()

    def compile_all_the_time():
        k = 0
        while not stop.is_set():
            engine.compile(adder(k := k + 1))

    busy = threading.Thread(target=compile_all_the_time)
    busy.start()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=child_compiles, args=(queue, engine, library))
    child.start()
    found = queue.get(timeout=60)
    child.join()
    stop.set()
    busy.join()
    assert found == (3, 77)

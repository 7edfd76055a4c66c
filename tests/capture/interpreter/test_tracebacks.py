"""The traceback of an exception that captured code raises and catches names the program's frames, as eager's does."""

import contextlib
import gc
import io
import logging
import sys
import traceback
import types
import weakref

import pytest
import torch

import jitney
from jitney.capture.interpreter import tracebacks


def fails(x, text="no"):
    raise ValueError(text)


def outer(x):
    return fails(x)


def text_of(error):
    return "".join(traceback.format_exception(error))


def format_exc(x):
    try:
        outer(x)
    except ValueError:
        return x + 1, traceback.format_exc()


def print_exc(x):
    file = io.StringIO()
    try:
        outer(x)
    except ValueError:
        traceback.print_exc(file=file)
    return x + 1, file.getvalue()


def returned(x):
    try:
        outer(x)
    except ValueError as error:
        return x + 1, error


def extracted(x):
    try:
        outer(x)
    except ValueError as error:
        return x + 1, str(traceback.extract_tb(error.__traceback__))


def line_numbers(x):
    try:
        outer(x)
    except ValueError:
        at = sys.exc_info()[2]
        lines = []
        while at is not None:
            lines.append((at.tb_lineno, at.tb_frame.f_code.co_name, at.tb_frame.f_code.co_filename))
            at = at.tb_next
        return x + 1, lines


def handled(x):
    try:
        outer(x)
    except ValueError as error:
        return x + 1, sys.exception() is error, text_of(sys.exception())


def kept_over_a_break(x):
    try:
        outer(x)
    except ValueError as error:
        kept = error.__traceback__
        jitney.graph_break()
        x = x * 2
        return x + 1, "".join(traceback.format_tb(kept)), kept is error.__traceback__


def raised_again(x):
    try:
        try:
            outer(x)
        except ValueError:
            x = x + 1
            raise
    except ValueError as error:
        return x + 1, text_of(error)


def raised_once_more_by_name(x):
    try:
        try:
            outer(x)
        except ValueError as error:
            raise error
    except ValueError as error:
        return x + 1, text_of(error)


def another_from_it(x):
    try:
        try:
            outer(x)
        except ValueError as error:
            raise TypeError("so") from error
    except TypeError as error:
        return x + 1, text_of(error)


def another_beside_it(x):
    try:
        try:
            outer(x)
        except ValueError:
            {}["key"]
    except KeyError as error:
        return x + 1, text_of(error)


def through_finally(x):
    try:
        try:
            outer(x)
        finally:
            x = x + 1
    except ValueError as error:
        return x + 1, text_of(error)


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, at):
        self.text = "".join(traceback.format_tb(at))
        self.same = at is error.__traceback__
        return True


def through_with(x):
    with Swallows() as seen:
        outer(x)
    return x + 1, seen.text, seen.same


@contextlib.contextmanager
def manager(log):
    try:
        yield
    except ValueError as error:
        log.append("".join(traceback.format_tb(error.__traceback__)))
        raise


def through_a_context_manager(x):
    log = []
    try:
        with manager(log):
            outer(x)
    except ValueError as error:
        return x + 1, text_of(error), log


def numbers(x):
    yield x + 1
    fails(x)


def through_a_generator(x):
    try:
        for y in numbers(x):
            x = x + y
    except ValueError as error:
        return x, text_of(error)


def through_yield_from(x):
    def all_of():
        yield from numbers(x)

    try:
        for y in all_of():
            x = x + y
    except ValueError as error:
        return x, text_of(error)


def thrown_into_a_generator(x):
    def waits():
        try:
            yield x
        except ValueError as error:
            yield text_of(error)

    waiting = waits()
    y = next(waiting)
    return y + 1, waiting.throw(ValueError("thrown"))


def through_c(x):
    try:
        sorted([3, 1, 2], key=lambda n: fails(x, str(n)))
    except ValueError as error:
        return x + 1, text_of(error)


def of_c(x):
    try:
        int("no number")
    except ValueError as error:
        return x + 1, text_of(error)


def of_an_operation(x):
    try:
        x @ x.new_ones(7)
    except RuntimeError as error:
        return x + 1, [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)]


def of_an_attribute(x):
    try:
        x.no_such_attribute  # noqa: B018
    except AttributeError as error:
        return x + 1, [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)]


def by_hand(x):
    try:
        outer(x)
    except ValueError as error:
        without = error.with_traceback(None)
        try:
            raise without
        except ValueError as again:
            return x + 1, text_of(again)


class Layer(torch.nn.Module):
    def forward(self, x):
        return fails(x)


LAYER = Layer()


def in_a_module(x):
    try:
        LAYER(x)
    except ValueError as error:
        names = [entry.name for entry in traceback.extract_tb(error.__traceback__) if "torch" not in entry.filename]
        return x + 1, names


def assertion(x):
    try:
        assert x.shape[0] > 5, "few"
    except AssertionError as error:
        return x + 1, text_of(error)


PROGRAMS = [
    format_exc, print_exc, returned, extracted, line_numbers, handled, kept_over_a_break, raised_again,
    raised_once_more_by_name,
    another_from_it, another_beside_it, through_finally, through_with, through_a_context_manager, through_a_generator,
    through_yield_from, thrown_into_a_generator, through_c, of_c, of_an_operation, of_an_attribute, by_hand,
    in_a_module, assertion,
]  # fmt: skip


def seen(result):
    return [text_of(value) if isinstance(value, BaseException) else value for value in result[1:]]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_text_is_eagers(program):
    expected = program(torch.ones(3))
    compiled = jitney.compile(program, backend="eager")
    for _ in range(2):
        got = compiled(torch.ones(3))
        assert seen(got) == seen(expected)
        torch.testing.assert_close(got[0], expected[0])
    if program not in (kept_over_a_break, thrown_into_a_generator):  # the generator waits in its try at a break
        assert len(jitney.explain(program)(torch.ones(3)).graphs) == 1


def test_each_call_raises_an_exception_of_its_own():
    compiled = jitney.compile(returned, backend="eager")
    first, second = compiled(torch.ones(3))[1], compiled(torch.ones(3))[1]
    assert first is not second
    with pytest.raises(ValueError, match="no") as caught:
        raise first
    assert text_of(second) == text_of(returned(torch.ones(3))[1])
    assert [entry.name for entry in caught.traceback][-2:] == ["outer", "fails"]


def locals_of(x):
    try:
        outer(x)
    except ValueError as error:
        return x + 1, sorted(error.__traceback__.tb_frame.f_locals)


READS = {
    "co_varnames": lambda at: at.tb_next.tb_frame.f_code.co_varnames,
    "f_globals": lambda at: at.tb_frame.f_globals["__name__"],
    "tb_lasti": lambda at: at.tb_lasti,
    "compared": lambda at: at.tb_next.tb_frame.f_code is outer.__code__,
    "compared for equality": lambda at: at.tb_next.tb_frame == at.tb_next.tb_next.tb_frame,
}


@pytest.mark.parametrize("name", READS)
def test_reading_what_its_frames_do_not_have_runs_eagerly(name):
    def reads(x):
        try:
            outer(x)
        except ValueError as error:
            return x + 1, READS[name](error.__traceback__)

    explained = str(jitney.explain(reads)(torch.ones(3)))
    assert name.split()[0] in explained and "a frame in a traceback is" in explained


def test_its_frames_do_not_keep_a_module_alive():
    module = types.ModuleType("short_lived_module")
    source = """
class Kept: pass
kept = Kept()
def fails(): raise ValueError('no')
def caught(x):
    try: fails()
    except ValueError as error: return x + 1, error
"""
    sys.modules["short_lived_module"] = module
    try:
        exec(compile(source, "short_lived_module.py", "exec"), module.__dict__)
        kept = weakref.ref(module.kept)
        error = jitney.compile(module.caught, backend="eager")(torch.ones(3))[1]
        assert [entry.name for entry in traceback.extract_tb(error.__traceback__)] == ["caught", "fails"]
    finally:
        del sys.modules["short_lived_module"]
    del module, error
    gc.collect()
    assert kept() is None


def test_reading_the_locals_of_its_frames_runs_eagerly():
    expected = locals_of(torch.ones(3))[1]
    explained = jitney.explain(locals_of)(torch.ones(3))
    assert "f_locals of a frame in a traceback is read" in str(explained)
    assert jitney.compile(locals_of, backend="eager")(torch.ones(3))[1] == expected


OUTSIDE = ValueError("made outside")


def test_an_exception_from_outside_is_changed_by_each_call():
    def noted(x):
        OUTSIDE.add_note(f"of {len(x)}")
        return x + 1

    compiled = jitney.compile(noted, backend="eager")
    for _ in range(3):
        compiled(torch.ones(3))
    assert OUTSIDE.__notes__ == ["of 3"] * 3
    OUTSIDE.__notes__.clear()


def test_a_traceback_is_taken_off_an_exception_from_outside_by_each_call():
    compiled = jitney.compile(lambda x: (x + 1, OUTSIDE.with_traceback(None)), backend="eager")
    for _ in range(3):
        with contextlib.suppress(ValueError):
            raise OUTSIDE
        assert OUTSIDE.__traceback__ is not None
        assert compiled(torch.ones(3))[1] is OUTSIDE
        assert OUTSIDE.__traceback__ is None


def test_impossible_columns_leave_the_line():
    odd = outer.__code__.replace(co_linetable=bytes([0xF7, 2, 2, 9, 1]), co_filename="<odd>")  # column 8 to column 0
    assert next(iter(odd.co_positions())) == (odd.co_firstlineno + 1, odd.co_firstlineno + 3, 8, 0)
    (found,) = traceback.extract_tb(tracebacks.before(None, tracebacks.stand_in(odd, 0), "nowhere"))
    assert (found.filename, found.lineno, found.name) == ("<odd>", odd.co_firstlineno + 1, "outer")


def test_what_a_logger_is_told_has_the_traceback(caplog):
    def logged(x):
        try:
            outer(x)
        except ValueError:
            logging.getLogger("test_tracebacks").exception("caught")
        return x + 1

    expected, got = [], []
    for found, function in ((expected, logged), (got, jitney.compile(logged, backend="eager"))):
        for _ in range(2):
            function(torch.ones(3))
        found += [text_of(record.exc_info[1]) for record in caplog.records]
        caplog.clear()
    assert got == expected and len(got) == 2


def test_a_traceback_raised_once_more_goes_on_with_the_one_before():
    def again(x):
        try:
            outer(x)
        except ValueError as error:
            before = error.__traceback__
            try:
                raise error
            except ValueError:
                return x + 1, error.__traceback__.tb_next is before

    assert jitney.compile(again, backend="eager")(torch.ones(3))[1] is again(torch.ones(3))[1] is True

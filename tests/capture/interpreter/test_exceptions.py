"""try, except, else, finally, raise, from: caught inside the frame and escaping."""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
import types
from typing import Any

import pytest
import torch
from helpers import check, compile_fn, graph_break, t

from jitney._util.callers import is_ours


class Custom(Exception):
    def __init__(self, code: int, text: str = "custom") -> None:
        super().__init__(f"{text} {code}")
        self.code = code


class Special(Custom):
    pass


def fail(kind: str) -> Any:
    if kind == "value":
        raise ValueError("bad value")
    if kind == "custom":
        raise Custom(3)
    if kind == "special":
        raise Special(4, text="special")
    if kind == "class":
        raise KeyError
    if kind == "key":
        return {}["missing"]
    if kind == "index":
        return [][5]
    if kind == "zero":
        return 1 // 0
    if kind == "attribute":
        return None.nothing  # type: ignore[attr-defined]
    if kind == "type":
        return len(3)  # type: ignore[arg-type]
    if kind == "stop":
        return next(iter([]))
    if kind == "int":
        return int("x")
    if kind == "unpack":
        _a, _b = [1]
    if kind == "call":
        return KINDS()  # type: ignore[operator]
    if kind == "import":
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    return "fine"


KINDS = "value custom special class key index zero attribute type stop int unpack call import none".split()


@pytest.mark.parametrize("kind", KINDS)
def test_caught_by_a_clause(kind: str) -> None:
    def fn(x: torch.Tensor, kind: str) -> tuple[Any, ...]:
        log: list[Any] = []
        try:
            y = x + 1
            log.append(fail(kind))
        except Special as e:
            log.append(("special", e.code))
        except (Custom, ValueError) as e:
            log.append((type(e).__name__, str(e), e.args))
        except LookupError as e:
            log.append(("lookup", repr(e)))
            y = x * 2
        except Exception as e:
            log.append(("other", type(e), str(e)))
        else:
            log.append("else")
        finally:
            log.append("finally")
        return y, log

    check(fn, t(), kind)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_escaping(kind: str) -> None:
    def fn(x: torch.Tensor, kind: str, log: list[Any]) -> Any:
        y = x + 1
        try:
            fail(kind)
        finally:
            log.append("cleanup")
        return y

    errors = {"class": KeyError, "key": KeyError, "index": IndexError, "stop": StopIteration}
    check(fn, t(), kind, [], raises=errors.get(kind, Exception))


def test_user_lines_are_in_the_traceback() -> None:
    def inner(x: torch.Tensor, d: dict[str, int]) -> torch.Tensor:
        return x + d["missing"]

    def fn(x: torch.Tensor, d: dict[str, int]) -> torch.Tensor:
        y = x * 2
        return inner(y, d)

    def user_frames(f: Any) -> list[tuple[str, int | None]]:
        try:
            f(t(), {})
        except KeyError as e:
            frames = traceback.extract_tb(e.__traceback__)
            return [(frame.name, frame.lineno) for frame in frames if frame.name in ("fn", "inner")]
        raise AssertionError("no exception")

    assert user_frames(compile_fn(fn))[-1] == user_frames(fn)[-1]


def test_raise_from_and_context() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        caught = []
        try:
            try:
                raise ValueError("first")
            except ValueError as e:
                raise RuntimeError("second") from e
        except RuntimeError as e:
            caught.append(e)
        try:
            try:
                raise ValueError("third")
            except ValueError:
                raise KeyError("fourth")
        except KeyError as e:
            caught.append(e)
        try:
            try:
                raise ValueError("fifth")
            except ValueError:
                raise KeyError("sixth") from None
        except KeyError as e:
            caught.append(e)
        return caught, x + len(caught)

    check(fn, t())


@pytest.mark.parametrize("how", ["cause", "context", "none", "bare", "name"])
def test_escaping_with_cause_and_context(how: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            raise ValueError("inner")
        except ValueError as e:
            if how == "cause":
                raise RuntimeError("outer") from e
            if how == "context":
                raise RuntimeError("outer")
            if how == "none":
                raise RuntimeError("outer") from None
            if how == "bare":
                raise
            raise e
        return x

    check(fn, t(), raises=Exception)


def test_exception_name_is_unbound_after_its_clause() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        e = "before"
        try:
            raise ValueError("v")
        except ValueError as e:  # type: ignore[assignment]
            kept = e
        try:
            return e, x
        except UnboundLocalError:
            return "unbound", kept.args, x + 1

    check(fn, t(), graphs=1)


def test_finally_order_and_overriding() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []

        def returns() -> int:
            try:
                log.append("try")
                return 1
            finally:
                log.append("finally")

        def overrides() -> int:
            for _ in range(3):
                try:
                    raise ValueError
                finally:
                    return 2  # noqa: B012

        def continues() -> list[int]:
            out = []
            for i in range(4):
                try:
                    if i == 1:
                        continue
                    if i == 3:
                        break
                    out.append(i)
                finally:
                    out.append(-i)
            return out

        return returns(), overrides(), continues(), log, x + 1

    check(fn, t(), graphs=1)


def test_nested_handlers_three_deep() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log = []
        try:
            try:
                try:
                    fail("value")
                except KeyError:
                    log.append("never")
                finally:
                    log.append("f1")
                    x = x + 1
            except ValueError as e:
                log.append(str(e))
                fail("custom")
            finally:
                log.append("f2")
        except Custom as e:
            log.append((e.code, type(e.__context__).__name__))
        return x, log

    check(fn, t(), graphs=1)


def test_exception_caught_by_caller_of_caller() -> None:
    def a(x: torch.Tensor, log: list[str]) -> Any:
        try:
            return b(x, log)
        finally:
            log.append("a")

    def b(x: torch.Tensor, log: list[str]) -> Any:
        for i in range(3):
            log.append(f"b{i}")
            if i == 1:
                raise Custom(i)
        return x

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        y = x + 1
        try:
            y = a(y * 2, log)
        except Custom as e:
            y = y * (e.code + 3)
        return y, log

    check(fn, t(), graphs=1)


def test_exception_object_kept_raised_later_and_inspected() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        error = Custom(7)
        error.note = "n"  # type: ignore[attr-defined]
        try:
            raise error
        except Exception as caught:
            return caught is error, caught.note, isinstance(caught, Custom), issubclass(Special, Custom), x + error.code  # type: ignore[attr-defined]

    check(fn, t(), graphs=1)


def test_add_note_and_exception_group() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        try:
            raise ExceptionGroup("many", [ValueError("v"), KeyError("k"), TypeError("t")])
        except* ValueError as group:
            log.append([str(e) for e in group.exceptions])
        except* (KeyError, TypeError) as group:
            log.append(len(group.exceptions))
        try:
            e = ValueError("noted")
            e.add_note("a note")
            raise e
        except ValueError as caught:
            log.append(caught.__notes__)
        return log, x + 1

    check(fn, t(), skips=None)


def test_assertion_error_and_not_implemented() -> None:
    def fn(x: torch.Tensor, which: int) -> torch.Tensor:
        if which == 0:
            raise AssertionError
        if which == 1:
            raise NotImplementedError("later")
        raise SystemExit(3)

    for which, kind in enumerate((AssertionError, NotImplementedError, SystemExit)):
        check(fn, t(), which, raises=kind)


def test_raise_of_a_non_exception() -> None:
    def fn(x: torch.Tensor) -> str:
        try:
            raise "text"  # type: ignore[misc]
        except TypeError as e:
            return str(e)

    check(fn, t())


def test_exception_from_tensor_operation_is_caught() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        try:
            return x @ y
        except RuntimeError:
            return x.sum() + y.sum()

    check(fn, t(3), t(4))


@pytest.mark.parametrize("kind", ["shape", "dim", "dtype", "view", "type"])
def test_exception_from_tensor_operation_escapes(kind: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        if kind == "shape":
            return y + torch.ones(7)
        if kind == "dim":
            return y.sum(dim=5)
        if kind == "dtype":
            return y @ torch.ones(3, dtype=torch.int64)
        if kind == "view":
            return y.view(5, 5)
        return torch.relu("no")  # type: ignore[arg-type]

    check(fn, t(), raises=Exception)


def test_loop_with_try_in_it() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> tuple[Any, ...]:
        good, bad = [], []
        for item in items:
            try:
                good.append(int(item))
            except ValueError:
                bad.append(item)
                continue
            x = x + 1
        return x, good, bad

    check(fn, t(), ["1", "x", "3", ""], graphs=1)


def test_hasattr_and_getattr_of_property_that_raises() -> None:
    class Odd:
        @property
        def missing(self) -> int:
            raise AttributeError("hidden")

        @property
        def broken(self) -> int:
            raise ValueError("broken")

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        odd = Odd()
        try:
            hasattr(odd, "broken")
        except ValueError as e:
            text = str(e)
        return hasattr(odd, "missing"), getattr(odd, "missing", 5), text, x + 1

    check(fn, t(), graphs=1)


def test_sys_exc_info_inside_and_outside_handler() -> None:
    import sys

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        try:
            raise ValueError("v")
        except ValueError:
            kind = sys.exc_info()[0]
        return kind, sys.exc_info()[0], x + 1

    check(fn, t(), skips=None)


# --- exceptions in every part: fields, contexts, what others see of them ----------------------------------------------

FIELDS = (
    "name obj value code errno strerror filename filename2 characters_written msg lineno offset text encoding object "
    "start end reason path message exceptions slot"
).split()


def told(value: Any) -> Any:
    """All that can be read of a value, and of the exceptions that it leads to."""
    if isinstance(value, BaseException):
        fields = {name: told(getattr(value, name)) for name in FIELDS if hasattr(value, name)}
        plain: Any = vars(BaseException)
        links = [told(plain[name].__get__(value)) for name in ("args", "__cause__", "__context__")]
        at = plain["__traceback__"].__get__(value)
        lines = [(entry.name, entry.lineno) for entry in traceback.extract_tb(at) if not is_ours(entry.filename)]
        said = traceback.format_exception_only(value), value.__suppress_context__
        return type(value), said, lines, links, fields, told(value.__dict__)
    if isinstance(value, (list, tuple)):
        return type(value), [told(one) for one in value]
    if isinstance(value, dict):
        return [(key, told(one)) for key, one in value.items()]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def same_as_eager(fn: Any, times: int = 2) -> None:
    """The results, twice, and ``LOG``."""
    seen = []
    for one in (fn, compile_fn(fn)):
        LOG.clear()
        seen.append([told(one(torch.ones(3))) for _ in range(times)] + told(LOG)[1])
    assert seen[1] == seen[0]


LOG: list[Any] = []


class Noisy(Exception):
    """Whose special methods are seen, where somebody calls them."""

    def __init__(self, value: Any) -> None:
        LOG.append("init")

    def __new__(cls, *args: Any) -> Any:
        LOG.append("new")
        return super().__new__(cls, *args)

    def __repr__(self) -> str:
        LOG.append("repr")
        return "noisy"

    def __str__(self) -> str:
        LOG.append("str")
        return "noisy"

    def __setattr__(self, name: str, value: Any) -> None:
        LOG.append(name)
        super().__setattr__(name, value)


class Slots(Exception):
    __slots__ = ("slot",)

    def __init__(self, value: Any) -> None:
        self.slot = value


class NamedMissing(AttributeError):
    pass


class Mixed(Special, OSError):
    def __init__(self) -> None:
        OSError.__init__(self, 2, "mixed", "file")


MADE = {
    "os": lambda: OSError(2, "no", "file", None, "other"),
    "blocking": lambda: BlockingIOError(1, "no", 5),
    "decode": lambda: b"\xff".decode(),
    "encode": lambda: "\xff".encode("ascii"),
    "import": lambda: ImportError("no", name="name", path="path"),
    "syntax": lambda: SyntaxError("no", ("file", 1, 2, "text", 3, 4)),
    "exit": lambda: SystemExit(3),
    "stop": lambda: StopIteration(3, 4),
    "subclass": lambda: NamedMissing("no", name="name", obj=3),
    "slots": lambda: Slots([1]),
    "mixed": Mixed,
    "group": lambda: ExceptionGroup("all", [ValueError(1), KeyError(2)]),
}


@pytest.mark.parametrize("name", MADE)
def test_what_an_exception_keeps_in_c_survives(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            raise MADE[name]()
        except BaseException as e:
            return x + 1, e

    same_as_eager(fn)


C_FAILURES = {
    "int": lambda: int("x"),
    "index": lambda: [1].index(5),
    "divide": lambda: 1 // 0,
    "next": lambda: next(iter([])),
    "sorted": lambda: sorted([1], key=lambda _: fail("custom")),
    "generator": lambda: list(fail("key") for _ in range(2)),
    "unpack": lambda: fail("unpack"),
    "not iterable": lambda: list(3),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("name", C_FAILURES)
def test_context_of_what_c_code_raises(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            try:
                fail("value")
            except ValueError:
                C_FAILURES[name]()
        except Exception as e:
            return x + 1, e, e.__context__, str(e.__context__)

    same_as_eager(fn)


def test_each_raise_sets_the_context_anew_and_makes_no_circle() -> None:
    def fn(x: torch.Tensor) -> Any:
        again, log = KeyError("k"), []
        for i in range(3):
            try:
                try:
                    raise ValueError(str(i))
                except ValueError as e:
                    log.append(e)
                    raise again
            except KeyError:
                pass
        try:
            try:
                raise again
            except KeyError:
                raise log[-1]
        except ValueError:
            return x + 1, log, again

    same_as_eager(fn)


def test_suppress_context_is_kept_apart_from_the_cause() -> None:
    def fn(x: torch.Tensor) -> Any:
        shown, hidden = ValueError("shown"), ValueError("hidden")
        shown.__cause__, shown.__suppress_context__ = KeyError("cause"), False
        hidden.__cause__ = None
        return x + 1, shown, hidden

    same_as_eager(fn)


def caught_by_c(x: torch.Tensor) -> Any:
    try:
        int("x")
    except ValueError as e:
        return x + 1, e


def own_context_through_c(x: torch.Tensor) -> Any:
    def key(_: int) -> None:
        try:
            fail("value")
        except ValueError:
            fail("custom")

    try:
        sorted([1], key=key)
    except Custom as e:
        return x + 1, e


def nothing_to_raise(x: torch.Tensor) -> Any:
    try:
        raise  # noqa: PLE0704
    except Exception as e:
        return x + 1, e


def asks(x: torch.Tensor) -> Any:
    return x + 1, sys.exc_info()[:2], sys.exception()


def asks_after_a_break(x: torch.Tensor) -> Any:
    x = x + 1
    graph_break()
    return x * 2, sys.exception()


def reads_context(x: torch.Tensor) -> Any:
    try:
        fail("custom")
    except Custom as e:
        return x + 1, e.__context__


def exit_stack(x: torch.Tensor) -> Any:
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(fail, "custom")
            stack.callback(fail, "value")
            x = x + 1
    except Custom as e:
        return x, e


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["in a handler first", "in a handler second"])
@pytest.mark.parametrize(
    "fn",
    [caught_by_c, own_context_through_c, nothing_to_raise, asks, asks_after_a_break, reads_context, exit_stack],
    ids=lambda fn: fn.__name__,
)
def test_what_the_caller_handles(fn: Any, order: tuple[bool, bool]) -> None:
    def call(one: Any, handles: bool, number: int) -> Any:
        try:
            if handles:
                raise TypeError(f"outside {number}")
        except TypeError:
            return told(one(torch.ones(3)))
        return told(one(torch.ones(3)))

    compiled = compile_fn(fn)
    for number, handles in enumerate((*order, *order)):
        assert call(compiled, handles, number) == call(fn, handles, number)


def test_what_the_caller_handles_stays_whole_at_a_break() -> None:
    def fn(x: torch.Tensor) -> Any:
        x = x + 1
        graph_break()
        return x * 2

    def handles(one: Any) -> Any:
        try:
            try:
                fail("value")
            except ValueError:
                fail("custom")
        except Custom as e:
            one(torch.ones(3))
            return told(e), [sorted(frame.f_locals) for frame, _ in traceback.walk_tb(e.__traceback__)][1:]

    assert handles(compile_fn(fn)) == handles(fn)


def test_special_methods_of_an_exception_run_as_often_as_in_eager() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            try:
                raise Noisy(1)
            except Noisy as e:
                raise KeyError("k") from e
        except KeyError as e:
            return x + 1, type(e.__cause__)

    same_as_eager(fn)


def test_exceptions_and_what_they_hold_refer_to_each_other() -> None:
    def fn(x: torch.Tensor) -> Any:
        listed: list[Any] = []
        holder = types.SimpleNamespace()
        first, second = ValueError(listed), KeyError(holder)
        listed.append(first)
        holder.error = second
        return x + 1, first.args[0] is listed, first, listed, second, holder

    result = compile_fn(fn)(torch.ones(3))
    _, same, first, listed, second, holder = result
    assert same is True and first.args[0] is listed and listed[0] is first
    assert second.args[0] is holder and holder.error is second


class Quits(BaseException):
    pass


def test_base_exceptions_through_c_code() -> None:
    def fn(x: torch.Tensor) -> Any:
        def quits(_: int = 0) -> Any:
            yield 1
            raise Quits("now")

        try:
            list(quits())
        except Quits as e:
            caught = e
        try:
            sum(i for i in quits())
        except Quits as e:
            return x + 1, caught, e

    same_as_eager(fn)


def test_a_generator_that_is_thrown_at_handles_what_its_caller_handles() -> None:
    def waits() -> Any:
        try:
            raise KeyError("own")
        except KeyError:
            yield sys.exception()
        yield sys.exception()
        raise TypeError("end")

    def fn(x: torch.Tensor) -> Any:
        log, one, other = [], waits(), waits()
        log.append(next(one))
        try:
            fail("value")
        except ValueError:
            log.append(next(one))
            try:
                next(one)
            except TypeError as e:
                log.append(e)
        for thrown in (ValueError("early"), 3):
            try:
                other.throw(thrown)
            except (ValueError, TypeError) as e:
                log.append(e)
        return x + 1, log

    same_as_eager(fn)


def test_missing_attributes_are_named_in_the_error() -> None:
    class Dynamic:
        @property
        def broken(self) -> int:
            raise AttributeError("broken")

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"mine: {name}")

    layer = torch.nn.Linear(2, 2)

    def fn(x: torch.Tensor) -> Any:
        found: list[Any] = []
        for value, name in ((Dynamic(), "broken"), (Dynamic(), "other"), (types.SimpleNamespace(), "c"), (layer, "w")):
            try:
                getattr(value, name)
            except AttributeError as e:
                found.append((str(e), e.name, e.obj is value))
        return x + 1, found

    same_as_eager(fn)


def test_messages_of_wrong_raises_clauses_and_patterns() -> None:
    def fn(x: torch.Tensor, which: int) -> Any:
        try:
            if which == 0:
                raise KeyError("k") from 3  # type: ignore[misc]
            if which == 1:
                _a, _b = 3  # type: ignore[misc]
            if which == 2:
                match 3:
                    case int(_a, _b):  # type: ignore[misc]
                        pass
            try:
                fail("value")
            except (KeyError, (TypeError, ValueError)):  # type: ignore[misc]  # noqa: B014
                pass
        except TypeError as e:
            return x + 1, e

    for which in range(4):
        same_as_eager(functools.partial(fn, which=which))


OUTSIDE = ValueError("outside")


def test_an_exception_from_outside_is_changed_by_each_call_and_not_by_capture() -> None:
    def again(x: torch.Tensor) -> Any:
        OUTSIDE.__init__("again", x.shape[0])  # type: ignore[misc]
        return x + 1

    def thrown(x: torch.Tensor) -> Any:
        def waits() -> Any:
            try:
                yield 1
            except ValueError as e:
                yield e is OUTSIDE

        waiting = waits()
        next(waiting)
        return x + 1, waiting.throw(OUTSIDE)

    def raised_in_a_callee(x: torch.Tensor) -> Any:
        def bare() -> None:
            raise  # noqa: PLE0704

        try:
            fail("value")
        except ValueError as e:
            graph_break()
            try:
                bare()
            except ValueError as same:
                return x + 1, same is e, same

    for fn in (again, thrown, raised_in_a_callee):
        seen = []
        for one in (fn, compile_fn(fn)):
            OUTSIDE.args, OUTSIDE.__traceback__ = ("outside",), None
            result = told([one(torch.ones(3)) for _ in range(3)])
            lines = [line for _, line in traceback.walk_tb(OUTSIDE.__traceback__)]
            seen.append((result, OUTSIDE.args, lines))
        assert seen[1] == seen[0], fn


def test_a_clause_matches_by_class_alone() -> None:
    class Meta(type):
        def __instancecheck__(cls, value: Any) -> bool:
            LOG.append("asked")
            return True

    class Never(Exception, metaclass=Meta):
        pass

    def fn(x: torch.Tensor) -> Any:
        try:
            fail("value")
        except Never:
            return x
        except ValueError:
            return x + 1

    same_as_eager(fn)


class Stopped(Exception):
    def __init__(self, value: torch.Tensor, step: int) -> None:
        super().__init__(value)
        self.value, self.step = value, step


def test_an_exception_is_made_around_a_tensor() -> None:
    def search(x: torch.Tensor, last: int) -> Any:
        for step in range(4):
            x = x * 2
            if step == last:
                raise Stopped(x + 1, step)
        return x

    def caught(x: torch.Tensor, last: int) -> Any:
        try:
            return search(x, last)
        except Stopped as found:
            return found.value, found.args[0] is found.value, found.step

    check(caught, t(), 2, graphs=1, breaks=0)
    check(caught, t(), 9, graphs=1, breaks=0)
    check(search, t(), 1, raises=Stopped)

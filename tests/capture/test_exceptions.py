"""try, except, else, finally, raise, from: caught inside the frame and escaping."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from helpers import check, compile_fn, t


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

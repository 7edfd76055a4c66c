import warnings

import torch

import jitney
from jitney._util import callers


def caught(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return found


def test_a_warning_points_at_the_line_that_called():
    (found,) = caught(lambda: callers.warn("careful"))
    assert (found.filename, found.lineno) == (
        __file__,
        test_a_warning_points_at_the_line_that_called.__code__.co_firstlineno + 1,
    )
    assert (found.category, str(found.message)) == (UserWarning, "careful")


def test_frames_of_torch_and_of_jitney_are_passed_over():
    module = torch.nn.Sequential(torch.nn.Identity())
    module.register_forward_hook(lambda *args: callers.warn("from a hook"))
    module[0].forward = lambda x: callers.warn("from below")
    space = {"warn": callers.warn}
    exec(compile("def emitted(): warn('from emitted code')", "<jitney emitted 1>", "exec"), space)
    assert [w.filename for w in caught(lambda: module(torch.ones(1)))] == [__file__, __file__]
    assert [w.filename for w in caught(space["emitted"])] == [__file__]


def test_frames_of_plugins_are_passed_over():
    space = {"warn": callers.warn, "__name__": "jitney_mine.lower"}
    exec(compile("def of_a_plugin(): warn('from a plugin')", "/site-packages/jitney_mine/lower.py", "exec"), space)
    assert [w.filename for w in caught(space["of_a_plugin"])] == [__file__]


def test_without_a_line_of_the_users_the_outermost_frame_is_it():
    space = {}
    exec(compile("def emitted(warn): warn('alone')", "<jitney emitted 2>", "exec"), space)
    import threading

    def run():
        thread = threading.Thread(target=space["emitted"], args=(callers.warn,))
        thread.start()
        thread.join()

    (found,) = caught(run)
    assert found.filename.endswith("threading.py")


def test_one_line_says_the_same_thing_once():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for text in ("a", "a", "b"):
            callers.warn(text)
    assert [str(w.message) for w in found] == ["a", "b"]


def test_what_is_ours():
    assert callers.is_ours(jitney.__file__) and callers.is_ours("<jitney f 7f>")
    assert not callers.is_ours(__file__) and not callers.is_ours("<string>") and not callers.is_ours(torch.__file__)

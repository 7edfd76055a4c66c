"""Kernels made at random, beside the reference."""

from __future__ import annotations

from hypothesis import assume, given
from random_kernels import SETTINGS, kernels

from jitney_lowering import NotLowered


@SETTINGS
@given(kernels(by_element=True, scans=True))
def test_random_kernels_do_what_the_reference_does(check, case):
    try:
        check(*case)
    except NotLowered:
        assume(False)

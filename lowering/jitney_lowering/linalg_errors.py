"""Several checks of factorisations as one operator: what ``linalg_checks.py`` puts into a graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check_errors(infos: Sequence[Tensor], names: Sequence[str], matrices: Sequence[bool]) -> None:
    """Raise ``LinAlgError`` for the first of several factorisations that has failed.

    Args:
        infos: int32, of one device: what ``_linalg_check_errors`` takes, for each.
        names: of the functions, for the messages.
        matrices: was it one matrix, rather than a batch?
    """
    if torch.cat([info.reshape(-1) for info in infos]).any().item():
        for info, name, is_matrix in zip(infos, names, matrices, strict=True):
            torch.ops.aten._linalg_check_errors(info, name, is_matrix=is_matrix)


_library = torch.library.Library("jitney", "FRAGMENT")
_library.define("linalg_check_errors(Tensor[] infos, str[] names, bool[] matrices) -> ()")
_library.impl("linalg_check_errors", check_errors, "CompositeExplicitAutograd")
CHECKS = torch.ops.jitney.linalg_check_errors.default

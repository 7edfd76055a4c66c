"""A GraphModule whose Python code is written when it is first wanted; backends that make kernels never want it."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import fx


class _Late:
    """Stands for ``forward`` until that is asked for: of the module, or of the class, which is the module's own."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = weakref.ref(module)

    def __get__(self, instance: Any, owner: type) -> Any:
        module = self.module()
        assert module is not None, "the class of a module that is gone"
        module.recompile()
        return module.forward if instance is not None else vars(type(module))["forward"]


class LazyGraphModule(fx.GraphModule):
    """As ``fx.GraphModule``, which writes and compiles the code of its graph each time that one is made.

    What ``recompile`` or another graph asks for later is done at once.
    """

    def __init__(self, root: torch.nn.Module | dict[str, Any], graph: fx.Graph) -> None:
        self.__dict__["_is_new"] = True
        super().__init__(root, graph)
        del self.__dict__["_is_new"]

    def recompile(self) -> Any:
        """Write the code, but for a module that is just being made."""
        if "_is_new" not in self.__dict__:
            return super().recompile()
        type(self).forward = _Late(self)  # type: ignore[assignment] # each module of FX has a class of its own
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "_code" and isinstance(vars(type(self)).get("forward"), _Late):
            self.recompile()
            return self._code
        return super().__getattr__(name)

    def __reduce__(self) -> Any:
        """What is pickled has the code in it."""
        assert self._code
        return super().__reduce__()

    def __reduce_package__(self, exporter: Any) -> Any:
        """As ``__reduce__``, for ``torch.package``."""
        assert self._code
        return super().__reduce_package__(exporter)

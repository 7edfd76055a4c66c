"""ONNX Runtime's sessions: one for each graph, made anew in a forked process."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import onnxruntime
import torch

from jitney_onnxruntime.options import OnnxruntimeOptions

LEVELS = {
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
# Fusions into kernels with numbers of their own: eager computes what they replace operator by operator. And what takes
# a negation from a condition: which of Where's branches a tensor is in decides whether -0.0 keeps its sign.
UNWANTED = [
    "AttentionFusion", "EmbedLayerNormFusion", "SkipLayerNormFusion", "LayerNormFusion", "SimplifiedLayerNormFusion",
    "GeluFusionL1", "GeluFusionL2", "FastGeluFusion", "QuickGeluFusion", "BiasGeluFusion",
    "NoopElimination", "NotWhereFusion",
]  # fmt: skip
_alive: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A model that can run, in this process or one forked from it.

    Args:
        model: serialized.
        options: of the backend.
    """

    def __init__(self, model: bytes, options: OnnxruntimeOptions) -> None:
        self.model, self.options = model, options
        self.threads = options.threads or torch.get_num_threads()
        self.made: onnxruntime.InferenceSession | None = None
        self.get()
        _alive.add(self)

    def get(self) -> Any:
        """The session; two threads that ask at the same time may make it twice, and one is dropped."""
        if self.made is None:
            settings = onnxruntime.SessionOptions()
            settings.graph_optimization_level = LEVELS[self.options.graph_optimization_level]
            settings.intra_op_num_threads = self.threads
            settings.log_severity_level = 4  # what fails is raised; nothing is printed
            settings.add_session_config_entry("session.intra_op.allow_spinning", str(int(self.options.spin)))
            self.made = onnxruntime.InferenceSession(
                self.model, settings, providers=["CPUExecutionProvider"], disabled_optimizers=UNWANTED
            )
        return self.made

    def forget(self) -> None:
        """In a forked process: its threads are not here. The session must not be freed, which would wait for them."""
        if self.made is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.made))
            self.made = None


def _forget_all() -> None:
    for session in list(_alive):
        session.forget()


os.register_at_fork(after_in_child=_forget_all)

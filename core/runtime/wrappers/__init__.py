"""What ``jitney.compile`` returns: a proxy that behaves like the original, only compiled; or the module itself."""

from jitney.runtime.wrappers.compiled_module import compile_in_place
from jitney.runtime.wrappers.wrap import forget_everything, module_of, root_of, running_originals, wrap

__all__ = ["compile_in_place", "forget_everything", "module_of", "root_of", "running_originals", "wrap"]

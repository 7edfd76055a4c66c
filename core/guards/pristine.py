"""Python's builtins as they were when jitney was imported: what guards call, whatever a program puts in their place."""

from __future__ import annotations

import builtins as _builtins

globals().update({_name: _value for _name, _value in vars(_builtins).items() if not _name.startswith("__")})

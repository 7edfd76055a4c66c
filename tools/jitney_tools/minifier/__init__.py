"""A graph that fails with some backend becomes a small program that fails in the same way.

``case`` is what is made smaller, ``steps`` how it may become smaller, ``search`` tries the steps, ``script`` writes and
reads programs, ``run`` is all of it.
"""

from jitney_tools.minifier.case import Case, Given
from jitney_tools.minifier.run import minify_file
from jitney_tools.minifier.script import fails, write_case
from jitney_tools.minifier.search import Found, minify

__all__ = ["Case", "Found", "Given", "fails", "minify", "minify_file", "write_case"]

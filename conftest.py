"""For the tests of the core and of all plugins: none is served by what another has left on disk."""

import os

os.environ.setdefault("JITNEY_CACHE", "0")

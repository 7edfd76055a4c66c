"""``python -m jitney``: the command line."""

import sys

from jitney.cli import main

sys.exit(main())

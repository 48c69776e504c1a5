"""`python -m carp` is the command `carp`."""

from __future__ import annotations

import sys

from carp.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())

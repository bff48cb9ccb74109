"""Runs the `milepost` command as ``python -m milepost``."""

import sys

from milepost.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())

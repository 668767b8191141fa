"""``python -m theorems``."""

from __future__ import annotations

import sys

from theorems.command.app import main

if __name__ == "__main__":
    sys.exit(main())

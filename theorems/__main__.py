"""``python -m theorems``; where a ``theorems.py`` lies in the working directory, Python runs that instead."""

from __future__ import annotations

import sys

from max_margin_theorems.command import main

if __name__ == "__main__":
    sys.exit(main())

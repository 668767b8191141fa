"""Entry point of ``python -m theorems``; a ``theorems.py`` in the working directory would be run instead."""

from __future__ import annotations

import sys

from max_margin_theorems.command import main

if __name__ == "__main__":
    sys.exit(main())

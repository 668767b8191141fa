"""Entry point of ``python -m theorems``, unless a ``theorems.py`` in the working directory is run in its place."""

from __future__ import annotations

import sys

from max_margin_theorems.command import main

if __name__ == "__main__":
    sys.exit(main())

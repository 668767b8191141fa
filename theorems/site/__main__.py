"""``python -m theorems.site FOLDER`` writes the source of the documentation site; ``make docs`` builds it."""

from __future__ import annotations

import sys
from pathlib import Path

from theorems.site.source import write_source

if __name__ == "__main__":
    write_source(Path(sys.argv[1]))

"""``python -m theorems.site FOLDER`` writes the source of the documentation site; ``make docs`` builds the site."""

from __future__ import annotations

import sys
from pathlib import Path

from reference_attention.errors import InvalidInput
from theorems.core.exit_code import Exit
from theorems.site.source import write_source


def main(arguments: list[str]) -> int:
    """Write the source of the site to a folder; return 0, or 2 with a message if the folder cannot be used."""
    try:
        if len(arguments) != 1:
            raise InvalidInput("theorems.site: give one folder to write to.")
        write_source(Path(arguments[0]))
    except InvalidInput as error:
        print(f"theorems: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    return Exit.UPHELD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

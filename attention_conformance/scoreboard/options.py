"""The options of ``theorems scoreboard``, apart from the command's code, which is imported only when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from theorems.command import options


@dataclass(frozen=True)
class ScoreboardOptions:
    """Try the attention kernels of other libraries: a table of capabilities, with a test of each red cell.

    A kernel whose library is not installed is only named, which is no failure. A red cell that the list of kernels
    explains is no failure either.

    Exit code 0: all other cells are upheld; 1: a red cell has no explanation; 2: bad input; 3: a cell could not be
    decided, or no kernel could be tested.
    """

    kernels: Annotated[Path | None, options.file("A list of kernels in TOML, in place of the suite's own.")] = None
    examples: Annotated[int, options.examples_option("calls of each capability")] = 25
    seed: Annotated[int, options.same_seed("calls")] = 0
    markdown: Annotated[bool, options.as_markdown("docs/scoreboard.md has it")] = False
    out: Annotated[Path, options.folder("Where the tests of red cells are written.")] = Path("scoreboard")
    jobs: options.Jobs = options.JOBS
    resume: options.Resume = None

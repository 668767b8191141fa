"""pyproject.toml has everything but this: the wheel also carries what the commands read besides code."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RECORDED = {"counterexamples": "*.json"}
"""Folders beside the packages; an installed package has them in theorems/recorded (theorems/core/recorded_files.py)."""


class WithRecorded(build_py):
    """The packages, and the recorded folders inside of one of them; a checkout is used as it is."""

    def run(self) -> None:
        """Copy both."""
        super().run()
        if not self.editable_mode:
            for source, target in self._recorded():
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Every file that the build writes."""
        recorded = [] if self.editable_mode else [str(target) for _, target in self._recorded()]
        return [*super().get_outputs(include_bytecode), *recorded]

    def _recorded(self) -> list[tuple[Path, Path]]:
        into = Path(self.build_lib, "theorems", "recorded")
        return [(path, into / path) for folder, kind in RECORDED.items() for path in sorted(Path(folder).glob(kind))]


setup(cmdclass={"build_py": WithRecorded})

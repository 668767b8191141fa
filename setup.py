"""Build step that pyproject.toml cannot express: the wheel also contains the recorded files that the commands read."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RECORDED = {"counterexamples": "*.json"}
"""Folder → its recorded files, which a wheel has in theorems/recorded (see theorems/core/recorded_files.py)."""


class WithRecorded(build_py):
    """The build of the packages, with the recorded folders inside ``theorems``; an editable install copies nothing."""

    def run(self) -> None:
        """Copy the packages and the recorded folders."""
        super().run()
        if not self.editable_mode:
            for source, target in self._recorded():
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the paths of all files that the build writes."""
        recorded = [] if self.editable_mode else [str(target) for _, target in self._recorded()]
        return [*super().get_outputs(include_bytecode), *recorded]

    def _recorded(self) -> list[tuple[Path, Path]]:
        into = Path(self.build_lib, "theorems", "recorded")
        return [(path, into / path) for folder, kind in RECORDED.items() for path in sorted(Path(folder).glob(kind))]


setup(cmdclass={"build_py": WithRecorded})

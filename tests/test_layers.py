"""The layers of CONTRIBUTING.md: each package imports only what stands before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("attention", "generators", "theorems", "tests")
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imported_packages(source: str) -> set[str]:
    """Top-level packages that a module imports anywhere, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def forbidden(layer: str, source: str) -> set[str]:
    """Layers that ``source`` imports although they stand to the right of ``layer``."""
    return imported_packages(source) & set(LAYERS[LAYERS.index(layer) + 1 :])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_what_stands_before(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    assert not forbidden(layer, path.read_text())


def test_an_upward_import_is_caught() -> None:
    assert forbidden("attention", "def f():\n    from theorems.statement import Claim\n") == {"theorems"}
    assert forbidden("generators", "import attention.risk, theorems") == {"theorems"}
    assert not forbidden("theorems", "from generators.case import Case")

"""``from theorems import …``: every name exists, imports no more than necessary, and has an example that is
executed.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import theorems
import theorems.api
from tests.documents import doctest_failures, python_of
from tests.places import ROOT

PAGE = "docs/library.md"
HEAVY = ("numpy", "scipy", "torch", "hypothesis", "rich", "flint")


def imported_by(code: str, modules: tuple[str, ...] = HEAVY) -> set[str]:
    """Return which of ``modules`` a fresh interpreter has imported after running the code."""
    code += f"\nimport sys; print(*[name for name in {modules!r} if name in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return set(process.stdout.split())


def test_importing_the_package_imports_no_heavy_module() -> None:
    assert imported_by("import theorems; dir(theorems)") == set()
    assert imported_by("import theorems, torch") >= {"torch"}  # check that an import would be noticed


@pytest.mark.parametrize("name", ["Problem", "Dataset", "Case", "max_margin", "gradient_flow", "regularization_path"])
def test_problems_and_solvers_are_imported_without_torch_and_hypothesis(name: str) -> None:
    result = imported_by(f"from theorems import {name}")
    assert "numpy" in result
    assert result.isdisjoint({"torch", "hypothesis", "rich"})


def test_torch_is_imported_for_kernels_only() -> None:
    code = "from theorems import *; verify('lemma-3', 'lemma-11', examples=1); assumptions('figure-1a')"
    assert "torch" not in imported_by(code)


def test_every_name_is_listed_once_and_is_the_object_of_its_module() -> None:
    assert theorems.__all__ == sorted(set(theorems.__all__))
    for name, module in theorems._MODULE_OF.items():
        assert getattr(theorems, name) is getattr(importlib.import_module(module), name)
    assert set(theorems.__all__) <= set(dir(theorems))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(theorems))
    (shown,) = (
        node.body
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    seen = {(node.module, alias.asname) for node in shown if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == {(module, name) for name, module in theorems._MODULE_OF.items()}


def test_files_that_import_from_the_api_have_the_same_objects() -> None:
    assert set(theorems.api.__all__) <= set(theorems.__all__)
    for name in theorems.api.__all__:
        assert getattr(theorems.api, name) is getattr(theorems, name)


def test_no_public_name_hides_a_subpackage() -> None:
    rooms = {result.name for result in pkgutil.iter_modules(theorems.__path__)}
    assert "run" in rooms
    assert rooms.isdisjoint(theorems.__all__)
    assert imported_by(
        "import theorems.run.verify, attention_conformance.kernel; theorems.verify; theorems.run.verify.draw_cases"
    ) >= {"numpy"}
    assert imported_by("from theorems import run; assert run.__name__ == 'theorems.run'") == set()


def test_names_that_are_not_public_are_refused() -> None:
    with pytest.raises(AttributeError, match=r"^module 'theorems' has no attribute 'prove'$"):
        theorems.prove  # type: ignore[attr-defined]  # noqa: B018


# Examples.


def documented() -> list[str]:
    """Return the public names whose docstring has an example."""
    return [name for name in theorems.__all__ if ">>>" in (getattr(theorems, name).__doc__ or "")]


@pytest.mark.parametrize("name", documented())
def test_docstring_examples_print_the_output_shown(name: str) -> None:
    assert doctest_failures(inspect.getdoc(getattr(theorems, name)) or "", name, {}) == []


def test_an_example_with_other_output_is_noticed() -> None:
    assert doctest_failures(">>> 1 + 1\n3\n", "wrong", {})


def test_every_public_name_is_in_an_executed_example() -> None:
    code = "\n".join(example.source for example in doctest.DocTestParser().get_examples(python_of(PAGE)))
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    assert set(theorems.__all__) - used == set()


def test_each_function_of_a_command_has_its_own_example() -> None:
    assert set(documented()) >= {
        *("verify", "hunt", "assumptions", "statements", "datasets", "check_attention", "Results"),
        *("Problem", "Dataset", "max_margin", "MaxMargin", "Infeasible", "locally_optimal"),
    }


def test_every_public_name_has_a_docstring() -> None:
    public_names = [name for name in theorems.__all__ if not isinstance(getattr(theorems, name), float)]
    assert [name for name in public_names if not (getattr(theorems, name).__doc__ or "").strip()] == []

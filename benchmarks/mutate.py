"""Mutation testing of single modules, each against its own tests: ``python benchmarks/mutate.py [MODULE …]``.

A mutant that its own tests miss is then faced with every statement on a few cases (``theorems verify``). What survives
goes to ``--out``, and ``--again`` faces it anew, after tests were added. Needs ``pip install cosmic-ray``, which is no
dependency of the project. Works on a copy; each mutant is a forked process into which the libraries are loaded already.
docs/mutation.md has a run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from difflib import unified_diff
from importlib import import_module
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

sys.path.insert(0, str(Path(__file__).parent))
from mutation_tests import ROOT, modules, tests_of

BINARY = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "FloorDiv_Mul", "BitAnd_BitOr", "BitOr_BitAnd")
COMPARISON = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Lt_Gt", "Gt_Lt", "Is_IsNot", "IsNot_Is")
OTHERS = (
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Invert", "ReplaceUnaryOperator_Delete_Not"),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
)
SECONDS = 60
"""Processor time after which a mutant counts as killed: it loops."""

WITHOUT_EFFECT = ("strict=", "frozen=", "eq=False", "total=", "/,", "__all__")
"""In the changed line: what no test is to notice (``strict`` of a zip over equal lengths,
keyword-only parameters, …)."""

LIBRARIES = (
    *("numpy", "torch", "scipy.optimize", "scipy.integrate", "scipy.special", "hypothesis.strategies", "jaxtyping"),
    *(
        "beartype",
        "flint",
        "mpmath",
        "pytest",
        "typer",
        "rich.console",
        "array_api_compat",
        "sklearn.datasets",
        "cvxpy",
    ),
)
VERIFY = "verify --examples 2 --jobs 1"


def operators() -> list[str]:
    """The operators of cosmic-ray that are used: one alternative for each symbol, not all of them."""
    names = [f"ReplaceBinaryOperator_{x}" for x in BINARY] + [f"ReplaceComparisonOperator_{x}" for x in COMPARISON]
    known = set(operator_names())
    return [name for name in (f"core/{x}" for x in (*names, *OTHERS)) if name in known]


def places(source: str) -> list[tuple[str, int]]:
    """Operator and occurrence of every mutant, but for annotations, which are never run."""
    tree, lines = get_ast(source), source.splitlines()
    found = []
    for name in operators():
        operator = get_operator(name)()
        starts = [start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
        for k, (row, _) in enumerate(starts):
            line = lines[row - 1]
            if not (" | " in line and ("->" in line or "=" not in line)):
                found.append((name, k))
    return found


def sample(module: str, source: str, size: int) -> Iterator[tuple[str, str]]:
    """Mutated sources with their difference, in an order that depends on the module's name alone."""
    found = places(source)
    random.Random(module).shuffle(found)
    taken = 0
    for name, k in found:
        if taken == size:
            return
        mutated = mutate_code(source, get_operator(name)(), k)
        difference = list(unified_diff(source.splitlines(), (mutated or source).splitlines(), lineterm="", n=0))[3:]
        if mutated is None or any(word in line for line in difference for word in WITHOUT_EFFECT):
            continue
        taken += 1
        yield mutated, "\n".join(difference)


def passes(work: Callable[[], int]) -> bool:
    """Whether ``work`` returns 0 in a forked process, within its processor time."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            code = int(work())
        except SystemExit as stop:
            code = int(stop.code or 0) if not isinstance(stop.code, str) else 1
        except BaseException:
            code = 1
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def run_tests(words: str) -> Callable[[], int]:
    """pytest on ``words``: files below tests/, and options in the form --option=value."""
    import pytest

    files = [word if word.startswith("-") else f"tests/{word}" for word in words.split()]
    return lambda: int(pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *files]))


def run_verify() -> int:
    """Every statement on a few generated cases: 0 if all are upheld."""
    from theorems.command.app import main

    return main(VERIFY.split())


def recorded(path: Path) -> dict[str, list[str]]:
    """Module → differences, from a file of survivors."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["module"], []).append(entry["mutant"])
    return found


def applied(source: str, difference: str) -> str | None:
    """The source with a recorded difference; None where the line is no longer there."""
    lines = difference.splitlines()
    old = "\n".join(line[1:] for line in lines if line.startswith("-"))
    new = "\n".join(line[1:] for line in lines if line.startswith("+"))
    return source.replace(old, new, 1) if old in source else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "modules", nargs="*", help="as reference_attention/losses, or reference_attention/ for all of them"
    )
    parser.add_argument("--sample", type=int, default=12, help="mutants per module")
    parser.add_argument("--out", type=Path, help="survivors, a line of JSON each, appended")
    parser.add_argument("--again", type=Path, help="a file of survivors to try anew, in place of a sample")
    options = parser.parse_args()
    again = recorded(options.again) if options.again else None
    for library in LIBRARIES:
        import_module(library)
    totals = [0, 0, 0]
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "*.egg-info", "__pycache__"))
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        sys.dont_write_bytecode = True
        if not passes(run_verify):
            sys.exit("Verification fails without a mutation.")
        for module in list(again) if again else modules(options.modules):
            path = copy / f"{module}.py"
            source = path.read_text()
            own = run_tests(tests_of(module))
            if not passes(own):
                sys.exit(f"{module}: its tests fail without a mutation.")
            if again:
                trials = [(changed, x) for x in again[module] if (changed := applied(source, x)) is not None]
            else:
                trials = list(sample(module, source, options.sample))
            missed, survivors = 0, []
            for mutated, difference in trials:
                path.write_text(mutated)
                if passes(own):
                    missed += 1
                    if passes(run_verify):
                        survivors.append(difference)
                path.write_text(source)
            print(
                f"{module}: {len(trials)} of {len(places(source))} mutants: {len(trials) - missed} killed by its own "
                f"tests, {missed - len(survivors)} by the statements, {len(survivors)} left"
            )
            print("\n".join(survivors), flush=True)
            if options.out:
                with options.out.open("a") as lines:
                    lines.writelines(json.dumps({"module": module, "mutant": x}) + "\n" for x in survivors)
            counts = (len(trials), len(trials) - missed, len(survivors))
            totals = [a + b for a, b in zip(totals, counts, strict=True)]
    print(f"together: {totals[0]} mutants, {totals[1]} killed by the module's own tests, {totals[2]} left")


if __name__ == "__main__":
    main()

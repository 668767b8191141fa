"""Mutation testing of single modules, each against its own tests: ``python benchmarks/mutate.py [MODULE …]``.

Needs ``pip install cosmic-ray``, which is no dependency of the project. Works on a copy; docs/mutation.md has a run.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parent.parent
TESTS = {
    "attention/losses": "attention/test_losses.py",
    "attention/exact": "attention/test_exact.py",
    "attention/directions": "attention/test_directions.py",
    "attention/label_svm": "attention/test_label_svm.py attention/test_joint.py",
    "attention/risk": "attention/test_risk.py",
    "attention/complementarity": "attention/test_max_margin.py",
    "attention/float_solution": "attention/test_float_solution.py attention/test_max_margin.py",
    "attention/certificate": "attention/test_certificate.py attention/test_max_margin.py",
    "attention/descent": "attention/test_descent.py",
    "attention/iteration": "attention/test_descent.py",
    "theorems/rounding": "theorems/test_rounding.py",
    "theorems/risk_change": "theorems/test_rounding.py",
    "theorems/statement": "theorems/test_statement.py",
    "theorems/lemma_03_softmax_covariance": "theorems/test_lemmas.py -k lemma-3",
    "theorems/lemma_04_descent_direction": "theorems/test_lemmas.py -k lemma-4",
    "theorems/lemma_05_gradient_correlation": "theorems/test_lemmas.py -k lemma-5",
    "theorems/lemma_11_feasibility": "theorems/test_lemmas.py -k lemma-11",
    "theorems/hunting/simplify": "theorems/hunting/test_simplify.py",
    "theorems/hunting/examine": 'theorems/hunting/test_search.py -k "not two_inputs and not one_input and not same_seed"',
}
"""Module → its tests, below tests/."""
BINARY = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "FloorDiv_Mul", "BitAnd_BitOr", "BitOr_BitAnd")
COMPARISON = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq", "Lt_Gt", "Gt_Lt", "Is_IsNot", "IsNot_Is")
OTHERS = (
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Invert", "ReplaceUnaryOperator_Delete_Not"),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
)
SECONDS = 90
"""Processor time after which a mutant counts as killed: it loops."""


def operators() -> list[str]:
    """The operators of cosmic-ray that are used: one alternative for each symbol, not all of them."""
    names = [f"ReplaceBinaryOperator_{x}" for x in BINARY] + [f"ReplaceComparisonOperator_{x}" for x in COMPARISON]
    known = set(operator_names())
    return [name for name in (f"core/{x}" for x in (*names, *OTHERS)) if name in known]


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Mutated sources with their difference; annotations, which are never run, are left alone."""
    for name in operators():
        k = 0
        while (mutated := mutate_code(source, get_operator(name)(), k)) is not None:
            k += 1
            lines = list(unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=0))[3:]
            if not any(" | " in line and ("->" in line or "=" not in line) for line in lines):
                yield mutated, "\n".join(lines)


def survives(copy: Path, module: str, mutated: str) -> bool:
    """Whether the tests of the module pass on the mutant."""
    path = copy / f"{module}.py"
    source = path.read_text()
    path.write_text(mutated)
    tests = " ".join(word if word[0] in '-"' or "/" not in word else f"tests/{word}" for word in TESTS[module].split())
    command = f"ulimit -t {SECONDS}; exec {sys.executable} -B -m pytest -x -q -p no:xdist -p no:cacheprovider {tests}"
    try:
        return subprocess.run(["bash", "-c", command], cwd=copy, capture_output=True, check=False).returncode == 0
    finally:
        path.write_text(source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="as attention/losses")
    parser.add_argument("--sample", type=int, default=12, help="mutants per module")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "*.egg-info", "__pycache__"))
        for module in options.modules:
            source = (copy / f"{module}.py").read_text()
            if not survives(copy, module, source):
                sys.exit(f"{module}: its tests fail without a mutation.")
            found = list(mutants(source))
            random.Random(module).shuffle(found)
            sample = found[: options.sample]
            survivors = [difference for mutated, difference in sample if survives(copy, module, mutated)]
            print(f"{module}: {len(sample) - len(survivors)} of {len(sample)} killed, {len(found)} mutants in all")
            print("\n".join(survivors), flush=True)


if __name__ == "__main__":
    main()

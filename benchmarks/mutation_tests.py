"""Which tests a mutated module faces first: for ``benchmarks/mutate.py``."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent

MAX_MARGIN = "reference_attention/svm/test_max_margin.py"
ITS_OWN = {
    "reference_attention/training/arc_length": "reference_attention/training/test_flow.py",
    "reference_attention/paths/ball_search": "reference_attention/paths/test_regularization_path.py"
    " reference_attention/paths/test_local_path.py",
    "reference_attention/svm/certificate": f"reference_attention/svm/test_certificate.py {MAX_MARGIN}",
    "reference_attention/svm/complementarity": MAX_MARGIN,
    "reference_attention/training/derivatives": "reference_attention/test_risk.py"
    " reference_attention/training/test_flow.py",
    "reference_attention/paths/excess": "reference_attention/test_risk.py"
    " reference_attention/paths/test_regularization_path.py",
    "reference_attention/svm/float_solution": f"reference_attention/svm/test_float_solution.py {MAX_MARGIN}",
    "theorems/core/implementation": "reference_attention/test_risk.py",
    "reference_attention/training/iteration": "reference_attention/training/test_descent.py",
    "reference_attention/paths/joint": "reference_attention/paths/test_joint.py",
    "reference_attention/training/joint_descent": "reference_attention/paths/test_joint.py",
    "reference_attention/paths/joint_path": "reference_attention/paths/test_joint.py",
    "reference_attention/svm/label_svm": "reference_attention/svm/test_label_svm.py"
    " reference_attention/paths/test_joint.py",
    "reference_attention/svm/least_norm": MAX_MARGIN,
    "reference_attention/paths/scheduled_direction": "reference_attention/paths/test_joint.py",
}
"""Where the file of tests is not named as the module is."""


def modules(wanted: list[str]) -> list[str]:
    """Modules as ``reference_attention/losses``; a name that ends in / stands for all of a package.
    All of attention by default."""
    found: list[str] = []
    for name in wanted or ["reference_attention/"]:
        if name.endswith("/"):
            paths = sorted((ROOT / name).rglob("*.py"))
            chosen = (path for path in paths if path.stem not in ("__init__", "errors"))
            found += [str(path.relative_to(ROOT).with_suffix("")) for path in chosen]
        else:
            found.append(name.removesuffix(".py"))
    return found


def tests_of(module: str) -> str:
    """Its tests, as files below tests/."""
    package, _, name = module.rpartition("/")
    return ITS_OWN.get(module, f"{package}/test_{name}.py")

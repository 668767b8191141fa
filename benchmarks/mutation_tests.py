"""Which tests a mutated module faces first: for ``benchmarks/mutate.py``."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent

MAX_MARGIN = "attention/test_max_margin.py"
ITS_OWN = {
    "attention/arc_length": "attention/test_flow.py",
    "attention/ball_search": "attention/test_regularization_path.py attention/test_local_path.py",
    "attention/certificate": f"attention/test_certificate.py {MAX_MARGIN}",
    "attention/complementarity": MAX_MARGIN,
    "attention/derivatives": "attention/test_risk.py attention/test_flow.py",
    "attention/excess": "attention/test_risk.py attention/test_regularization_path.py",
    "attention/float_solution": f"attention/test_float_solution.py {MAX_MARGIN}",
    "attention/implementation": "attention/test_risk.py",
    "attention/iteration": "attention/test_descent.py",
    "attention/joint": "attention/test_joint.py",
    "attention/joint_descent": "attention/test_joint.py",
    "attention/joint_path": "attention/test_joint.py",
    "attention/label_svm": "attention/test_label_svm.py attention/test_joint.py",
    "attention/least_norm": MAX_MARGIN,
    "attention/scheduled_direction": "attention/test_joint.py",
}
"""Where the file of tests is not named as the module is."""


def modules(wanted: list[str]) -> list[str]:
    """Modules as ``attention/losses``; a name that ends in / stands for all of a package. All of attention by default."""
    found: list[str] = []
    for name in wanted or ["attention/"]:
        if name.endswith("/"):
            paths = sorted((ROOT / name).glob("*.py"))
            found += [f"{name}{path.stem}" for path in paths if path.stem != "__init__" and path.stem != "errors"]
        else:
            found.append(name.removesuffix(".py"))
    return found


def tests_of(module: str) -> str:
    """Its tests, as files below tests/."""
    package, _, name = module.rpartition("/")
    return ITS_OWN.get(module, f"{package}/test_{name}.py")

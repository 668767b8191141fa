"""Functions that were attributes of :class:`theorems.core.implementation.Implementation` until version 0.2.

``under_test.max_margin(…)`` is now ``under_test[max_margin](…)``; the old form works for one more version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

_MODULES = {
    "directions": "direction",
    "optimal_attention": "optimal_attention",
    "paths.joint_risk": "joint_gradient",
    "paths.joint_search": "joint_minimiser",
    "paths.local_path": "local_path",
    "paths.mixing_path": "mixing_path",
    "paths.nuclear_path": "nuclear_path",
    "paths.regularization_path": "regularization_path",
    "paths.scheduled_direction": "scheduled_direction critical_ratio",
    "problem": "log_smoothness keys_and_scores",
    "query_dataset": "outer_keys_and_scores",
    "risk": "weights=softmax_weights risk scaled_gradient log_excess_risk",
    "sequence_risk": "sequence_parts sequence_excess",
    "svm.finite_part": "finite_part mixing_offset",
    "svm.general_svm": "general_svm",
    "svm.label_svm": "label_svm relaxed_max_margin",
    "svm.max_margin": "max_margin locally_optimal",
    "svm.max_margin_sets": "max_margin_sets",
    "svm.norm_max_margin": "norm_max_margin",
    "svm.nuclear_max_margin": "nuclear_max_margin",
    "svm.sequence_max_margin": "sequence_max_margin",
    "training.descent": "gradient_descent normalized_gradient_descent",
    "training.factored_descent": "factored_gradient_descent",
    "training.factored_flow": "factored_flow",
    "training.flow": "gradient_flow",
    "training.joint_descent": "joint_descent head_gradient",
    "training.steepest_descent": "steepest_descent mirror_descent",
}
"""Names of functions by module of :mod:`reference_attention`; ``a=b`` means that the attribute ``a`` held the function
``b``."""
_FUNCTIONS = {
    former: (f"reference_attention.{module}", name or former)
    for module, names in _MODULES.items()
    for former, _, name in (entry.partition("=") for entry in names.split())
}


def function_named(former: str) -> Callable[..., Any]:
    """Return the function that the attribute ``former`` of ``Implementation`` held until version 0.2.

    Raises:
        AttributeError: the class had no such attribute.
    """
    if former not in _FUNCTIONS:
        raise AttributeError(f"Implementation has no attribute {former!r}; ask for a function f by under_test[f]")
    module, name = _FUNCTIONS[former]
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def functions_among(options: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """Return, by name, the functions that former attributes held; other names in ``options`` are ignored."""
    return {name: function_named(name) for name in options if name in _FUNCTIONS}


def names_of(former: str, function: Callable[..., Any]) -> tuple[str, str]:
    """Return ``Implementation.former``, as text, and the expression that replaces it."""
    name = function.__name__
    return f"Implementation.{former}", f"Implementation[{name}], with {name} from {function.__module__}"

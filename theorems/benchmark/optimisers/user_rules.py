"""Rules in a user's Python file, named ``path.py:NAME``: classes derived from :class:`.optimiser.Optimiser`."""

from __future__ import annotations

from typing import Any

from reference_attention.errors import InvalidInput
from theorems.benchmark.optimisers.optimiser import Against, Optimiser, Theory
from theorems.run.registry.user_file import names_in_file, parts_of


def optimiser_in_file(id: str) -> tuple[type[Optimiser], Theory]:
    """Load the class named ``path.py:NAME``, and return it with the theory that it declares.

    Raises:
        InvalidInput: the file does not exist, cannot be run or has no such name, or the object with this name is no
        rule.
    """
    path, name = parts_of(id)
    names = names_in_file(path, "a rule")
    by_name = {key: value for key, value in names.items() if _is_a_rule(value)}
    rules = ", ".join(by_name) or "none; derive a class from theorems.api.Optimiser"
    if not name:
        raise InvalidInput(f"{path}: name the rule as {path}:NAME; the rules in the file are {rules}.")
    if name not in names:
        raise InvalidInput(f"{path}: has no rule {name!r}; its rules are {rules}.")
    if name not in by_name:
        raise InvalidInput(f"{path}: {name!r} is no class derived from theorems.api.Optimiser; its rules are {rules}.")
    rule = by_name[name]
    if rule.step is Optimiser.step:
        raise InvalidInput(f"{path}: {name} has no step(self, p, gradient); define it so that it returns the next p.")
    if rule.batched:
        raise InvalidInput(f"{path}: {name}.batched is set; leave it out: a rule in a file gets one problem at a time.")
    return rule, theory_of(rule, f"{path}: {name}")


def _is_a_rule(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Optimiser) and value is not Optimiser


def theory_of(rule: type[Optimiser], name: str) -> Theory:
    """Return the theory that a class declares, as plain numbers and text, which can be sent to other processes.

    Raises:
        InvalidInput: the class's ``theory`` is no Theory, or has invalid values.
    """
    theory: Any = rule.theory
    if not isinstance(theory, Theory):
        raise InvalidInput(f"{name}.theory is of type {type(theory).__name__}; give a Theory of theorems.api.")
    numbers = ("norm", theory.norm, 1), ("exponent", theory.exponent, 0), ("proven", theory.proven, 0)
    for field, value, above in numbers:
        if value is not None and not (_is_number(value) and above < value < float("inf")):
            raise InvalidInput(f"{name}.theory: {field} is {value!r}; give a finite number above {above}, or None.")
    if not isinstance(theory.source, str) or theory.against not in list(Against):
        raise InvalidInput(f"{name}.theory: its `source` must be text, and its `against` 't' or 'log t'.")
    steepest, momentum = theory.steepest, theory.momentum
    if steepest is not None and not (_is_number(steepest) and steepest >= 1):
        raise InvalidInput(
            f"{name}.theory: steepest is {steepest!r}; give the q of the norm ‖·‖_q, 1 ≤ q ≤ np.inf, or None."
        )
    if not (_is_number(momentum) and 0 <= momentum < 1):
        raise InvalidInput(f"{name}.theory: momentum is {momentum!r}; give a number from 0 to below 1.")
    norm, exponent, proven = (None if value is None else float(value) for _, value, _ in numbers)
    return Theory(
        norm,
        str(theory.source),
        Against(theory.against),
        exponent,
        bool(theory.along_gradient),
        proven,
        None if steepest is None else float(steepest),
        float(momentum),
        bool(theory.spectral),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def load_rule(id: str) -> None:
    """Load the rule named ``path.py:NAME`` to check that it can be used; discard it.

    Raises:
        InvalidInput: the rule cannot be used.
    """
    optimiser_in_file(id)

"""Rules of ``torch.optim`` by name with their arguments, such as ``torch.optim:AdamW(lr=0.1)``.

The arguments are read as literals and nothing of the text is executed. The class gets ∇L in float64, computed without
cancellation; if ∇L underflows, the class gets 0, as in training.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from reference_attention.errors import InvalidInput, suggest
from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers.optimiser import Optimiser, Setting
from theorems.benchmark.optimisers.scaled_vectors import Vector

PREFIX = "torch.optim:"
FORM = f"{PREFIX}CLASS(lr=ETA)"


@dataclass(frozen=True)
class TorchRule:
    """A class of ``torch.optim`` with its arguments; calling it makes a rule for a run.

    Attributes:
        name: the name of the class.
        arguments: the keyword arguments, literals.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Optimiser:
        """Return a new instance of the rule, before its first step."""
        return _TorchOptimiser(self)


class _TorchOptimiser(Optimiser):
    """A rule that passes each gradient to an instance of a class of ``torch.optim`` with a single parameter."""

    def __init__(self, rule: TorchRule) -> None:
        """Take the class and its arguments."""
        self._rule = rule

    def begin(self, setting: Setting) -> None:
        """Make the parameter, in the shape of p or W, and an instance of the class that updates it."""
        import torch

        self._torch = torch
        self._parameter = torch.nn.Parameter(torch.tensor(setting.start.reshape(setting.shape), dtype=torch.float64))
        self._optimiser = getattr(torch.optim, self._rule.name)([self._parameter], **self._rule.arguments)

    def step(self, p: Vector, gradient: ScaledGradient) -> Vector:
        """Return the parameter after a step of the ``torch.optim`` instance."""
        g = np.exp(np.asarray(gradient.log_scale))[..., None] * np.asarray(gradient.direction)
        self._parameter.grad = self._torch.tensor(g.reshape(self._parameter.shape))
        self._optimiser.step()
        return self._parameter.detach().numpy().ravel().copy()


def is_of_torch(name: str) -> bool:
    """Return whether a name denotes a rule of ``torch.optim``."""
    return name.startswith(PREFIX)


def torch_rule(name: str) -> TorchRule:
    """Return the rule with a name, after trying one step of it.

    Raises:
        InvalidInput: torch is not installed or has no such class, or arguments are no literals or are refused by the
            class.
    """
    class_name, arguments = _read(name)
    if find_spec("torch") is None:
        raise InvalidInput(f"--rule: {name} needs PyTorch, which is not installed; pip install torch.")
    import torch

    classes = {
        key: value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    if class_name not in classes:
        raise InvalidInput(f"--rule: torch.optim has no optimiser {class_name!r}.{suggest(class_name, classes)}")
    rule = TorchRule(class_name, arguments)
    try:
        parameter = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
        instance = classes[class_name]([parameter], **arguments)
        parameter.grad = torch.ones(2, 2, dtype=torch.float64)
        instance.step()
    except Exception as error:  # whatever torch raises about its arguments
        why = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInput(
            f"--rule: {name} cannot be used ({why}); give arguments with which {class_name} takes"
            " a step from a dense gradient alone, without a closure."
        ) from None
    return rule


def swept(name: str) -> list[str]:
    """Expand a name whose arguments are lists into names with one value per argument, in all combinations.

    Raises:
        InvalidInput: an argument is no literal.

    >>> swept("torch.optim:SGD(lr=[0.1, 1], momentum=0.9)")
    ['torch.optim:SGD(lr=0.1, momentum=0.9)', 'torch.optim:SGD(lr=1, momentum=0.9)']
    """
    class_name, arguments = _read(name)
    if not any(isinstance(value, list) for value in arguments.values()):
        return [name]
    values = [value if isinstance(value, list) else [value] for value in arguments.values()]
    return [
        f"{PREFIX}{class_name}({', '.join(f'{key}={value!r}' for key, value in zip(arguments, row, strict=True))})"
        for row in product(*values)
    ]


def _read(name: str) -> tuple[str, dict[str, Any]]:
    """Parse a name into the class name and its keyword arguments, without executing anything.

    Raises:
        InvalidInput: the text is no call with keyword arguments that are literals.
    """
    text = name.removeprefix(PREFIX)
    wrong = InvalidInput(
        f"--rule: {name!r} is not of the form {FORM}, with arguments that are numbers or other literals."
    )
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Name):
            return call.id, {}
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise wrong
        if any(keyword.arg is None for keyword in call.keywords):
            raise wrong
        return call.func.id, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise wrong from None

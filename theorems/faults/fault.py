"""Planted faults: implementations, or readings of the data, that are wrong in one way.

A module of faults makes one list, ``FAULTS = Faults(Kind.RUN)``, whose methods are decorators of the wrong functions::

    @FAULTS.plant("path-at-twice-the-radius", "2p̄(R) in place of p̄(R)", "theorem-4", regularization_path)
    def _longer(right, problem, norms, **options):
        return right(problem, 2 * norms, **options)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from generators.case import Case
from generators.subject import Subject
from theorems.core.implementation import REFERENCE, Implementation

Function = TypeVar("Function", bound=Callable[..., Any])


class Kind(StrEnum):
    """The part of the computation in which a fault is."""

    SOFTMAX = "softmax"
    """The softmax: weights, risk and gradient agree with each other, but all are wrong."""
    GRADIENT = "gradient"
    RISK = "risk"
    """The value of the risk, or of its excess over the risk of selecting tokens."""
    STEP = "step"
    """The smoothness constant L_p, whose inverse is the step size."""
    DATA = "data"
    """The data: the attention or the SVM gets other data than the statement."""
    SVM = "svm"
    SETS = "sets"
    """The problem ATT-SVM' of Theorem 8, for sets of optimal tokens."""
    DIRECTION = "direction"
    """The objects of Definition 3: selected tokens, margin and neighbours of a direction."""
    LABELS = "labels"
    """The max-margin problem (SVM) of the head v, and p_relax of Theorem 6."""
    JOINT = "joint"
    """The functions that train or compute head and prompt together."""
    MIXING = "mixing"
    """The optimum where attention mixes tokens: the weights s⋆ at the limit, the SVM for sets (Gen-SVM), and the finite
    part W_fin of W."""
    RUN = "run"
    """The descents, flows and paths: gradients are right, but the points are wrong."""


FaultKind = Kind
"""Alias of :class:`Kind` for modules that import another class of this name."""


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        name: a stable name in kebab-case.
        kind: the part of the computation that is wrong.
        says: what is wrong, in a line.
        caught_by: the id of the cheapest statement that is falsified under the fault within a few examples.
        made: the function size → faulty implementation; faults without a size ignore the argument.
        size: how wrong the fault is, a positive number; a smaller one is less wrong; 0 for faults without a size.
        spoil: for faults in the data, the function case → wrongly read case. The assumptions are checked on the right
            case, and the statement gets the wrong one.
        about: the class of the cases that ``spoil`` can change.
    """

    name: str
    kind: Kind
    says: str
    caught_by: str
    made: Callable[[float], Implementation]
    size: float = 0.0
    spoil: Callable[[Any], Any] | None = None
    about: type[Subject] = Case

    @property
    def implementation(self) -> Implementation:
        """The faulty implementation, named after the fault."""
        return replace(self.made(self.size), name=self.name)

    def of_size(self, size: float) -> Fault:
        """Return this fault with another size, that is, more or less wrong."""
        return replace(self, size=size)


def right(size: float) -> Implementation:
    """Return the reference: the implementation under a fault that is in the data, not in a function."""
    return REFERENCE


class Faults(list[Fault]):
    """Planted faults of one kind; each method returns a decorator that adds a fault and leaves the function unchanged.

    The methods share these arguments:

    - ``name``, ``says``, ``caught_by``, ``size``: see the attributes of :class:`Fault`,
    - ``functions``: the functions of the reference that the wrong function replaces,
    - ``through``: a function f; f(decorated function, …) is then planted in place of the decorated function itself,
    - ``kind``: the kind of this fault, if it differs from the kind of the list.

    If a fault has a size, the decorated function gets the size as its second argument.
    """

    def __init__(self, kind: Kind) -> None:
        """Begin an empty list of faults of the given kind."""
        super().__init__()
        self.kind = kind

    def plant(
        self, name: str, says: str, caught_by: str, *functions: Callable[..., Any], **further: Any
    ) -> Callable[[Function], Function]:
        """Plant the decorated function for ``functions``: (right function, size, arguments …) → wrong result."""
        return self._replace(_call_wrong, name, says, caught_by, functions, **further)

    def change(
        self,
        name: str,
        says: str,
        caught_by: str,
        *functions: Callable[..., Any],
        only: type = object,
        **further: Any,
    ) -> Callable[[Function], Function]:
        """Plant the decorated function as a change of the results of ``functions``.

        The decorated function maps (right result, size, arguments …) to the wrong result. Results that are not
        instances of ``only`` stay unchanged.
        """
        return self._replace(partial(_change_result, only), name, says, caught_by, functions, **further)

    def _replace(
        self,
        call: Callable[..., Any],
        name: str,
        says: str,
        caught_by: str,
        functions: tuple[Callable[..., Any], ...],
        through: Callable[..., Any] | None = None,
        **further: Any,
    ) -> Callable[[Function], Function]:
        def vary(wrong: Callable[..., Any]) -> Callable[[float], Implementation]:
            return partial(_replaced, partial(call, partial(through, wrong) if through else wrong), functions)

        return self.wrap(name, says, caught_by, vary, **further)

    def wrap(
        self,
        name: str,
        says: str,
        caught_by: str,
        vary: Callable[[Any], Callable[[float], Implementation]],
        **further: Any,
    ) -> Callable[[Function], Function]:
        """Plant ``vary(decorated function)``, a function size → implementation that can be sent to other processes."""
        kind = further.pop("kind", self.kind)

        def add(wrong: Function) -> Function:
            self.append(Fault(name, kind, says, caught_by, vary(wrong), **further))
            return wrong

        return add

    def spoil(
        self, name: str, says: str, caught_by: str, about: type[Subject] = Case
    ) -> Callable[[Function], Function]:
        """Plant a wrong reading of the data, the decorated function: case → wrong case that the statement gets."""

        def add(wrong: Function) -> Function:
            self.append(Fault(name, Kind.DATA, says, caught_by, right, spoil=wrong, about=about))
            return wrong

        return add


def _replaced(wrong: Callable[..., Any], functions: tuple[Callable[..., Any], ...], size: float) -> Implementation:
    """Return the reference with partial(wrong, function, sizes) for each function; ``sizes`` is empty for size 0."""
    sizes = (size,) if size else ()
    return REFERENCE.replace("", {function: partial(wrong, function, sizes) for function in functions})


def _call_wrong(wrong: Any, right: Any, sizes: tuple[float, ...], *arguments: Any, **options: Any) -> Any:
    return wrong(right, *sizes, *arguments, **options)


def _change_result(
    only: type, wrong: Any, right: Any, sizes: tuple[float, ...], *arguments: Any, **options: Any
) -> Any:
    result = right(*arguments, **options)
    return wrong(result, *sizes, *arguments, **options) if isinstance(result, only) else result

"""Steps that simplify a counterexample: to fewer inputs, tokens and dimensions, and to zeros, integers and halves.

Hypothesis shrinks the draws from which a strategy computes data; the steps here shrink the data themselves, which users
see. A step is kept only if its result is still a counterexample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int64

from generators.case import Case
from generators.subject import Subject
from reference_attention.errors import InvalidInput
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset

STEPS = 600
"""Largest number of simpler cases that are checked; a limit in seconds would not be reproducible."""
MOST_DROPS = 64
"""Largest number of ways to leave out one token of each input that are checked."""
SIMPLEST_LOSS = "correlation"


@dataclass(frozen=True)
class Parts:
    """A case as named arrays, which the steps change one by one.

    Attributes:
        case: the case, which gives everything but the arrays.
        arrays: keys and scores; or, if the case has tokens: X, Y, v, and whichever of W and queries is given. The start
            and all further arrays of the case are included, too.
    """

    case: Case
    arrays: dict[str, Any]

    @classmethod
    def of(cls, case: Case) -> Parts:
        """Return a case as its arrays: those of its dataset if it has one, otherwise keys and scores."""
        data, problem = case.dataset, case.problem
        arrays: dict[str, Any] = {}
        if case.queried is not None:
            arrays |= {name: getattr(case.queried, name) for name in ("X", "queries", "Y", "v")}
        elif data is not None and np.array_equal(data.problem.keys, problem.keys):
            arrays |= {"X": data.X, "Y": data.Y, "v": data.v}
            if data.W is not None:
                arrays["W"] = data.W
        else:
            arrays |= {"keys": problem.keys, "scores": problem.scores}
        if case.start is not None:
            arrays["start"] = case.start
        dataset = data if "X" in arrays and "queries" not in arrays else None
        return cls(case.replace(dataset=dataset), arrays | dict(case.arrays))

    def build(self) -> Case | None:
        """Return the case with these arrays; None if the arrays are invalid."""
        arrays = dict(self.arrays)
        loss = self.case.problem.loss
        data: dict[str, Any] = {"dataset": None, "queried": None}
        try:
            if "queries" in arrays:
                X, queries, Y, v = (arrays.pop(name) for name in ("X", "queries", "Y", "v"))
                data["queried"] = QueryDataset(X, queries, Y, v, loss)
            elif "X" in arrays:
                data["dataset"] = Dataset(
                    arrays.pop("X"), arrays.pop("Y"), arrays.pop("v"), arrays.pop("W", None), loss
                )
            dataset = data["queried"] or data["dataset"]
            data["problem"] = dataset.problem if dataset else Problem(arrays.pop("keys"), arrays.pop("scores"), loss)
        except InvalidInput:
            return None
        return self.case.replace(**data, start=arrays.pop("start", None), arrays=MappingProxyType(arrays))

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal cases."""
        alpha = None if self.case.alpha is None else self.case.alpha.tobytes()
        contents = tuple((k, np.shape(v), np.asarray(v).tobytes()) for k, v in self.arrays.items())
        return contents, alpha, self.case.problem.loss.name, self.case.seed

    def replace(self, alpha: Any = None, **arrays: Any) -> Parts:
        """Return a copy with some arrays, and α if given, replaced."""
        case = self.case if alpha is None else self.case.replace(alpha=alpha)
        # Adding 0.0 turns −0.0 into 0.0.
        return Parts(case, {**self.arrays, **{name: value + 0.0 for name, value in arrays.items()}})


def simplify_counterexample(case: Any, still: Callable[[Any], bool]) -> Any:
    """Return a counterexample, made from the given one, that no step makes simpler.

    Args:
        case: a counterexample.
        still: a function that returns whether a simpler case is a counterexample to the same claim as ``case``.
    """
    if not isinstance(case, Case):
        return _follow_own_steps(case, still)
    if case.sequence is not None:
        return case
    search = _Greedy(Parts.of(case), still)
    while search.pass_over():
        pass
    return search.parts.build() or case


def _follow_own_steps(case: Subject, still: Callable[[Subject], bool]) -> Subject:
    """Return a simpler counterexample for a case whose class defines its own steps in ``simpler``."""
    for _ in range(STEPS):
        step = next((step for step in islice(case.simpler(), STEPS) if still(step)), None)
        if step is None:
            break
        case = step
    return case


class _Greedy:
    """A greedy search that makes every step whose result is a counterexample; no case is checked twice."""

    def __init__(self, parts: Parts, still: Callable[[Case], bool]) -> None:
        self.parts = parts
        self._still = still
        self._left = STEPS
        self._tried: set[tuple[Any, ...]] = set()

    def pass_over(self) -> bool:
        """Make each kind of step in turn as often as possible; return whether another pass may change the case."""
        changed = False
        for kind in (_fewer, _plainer, _rounded_arrays, _simpler_values, _simpler_entries):
            while self._one_of(kind(self.parts)):
                changed = True
        return changed and self._left > 0

    def _one_of(self, steps: Iterator[Parts]) -> bool:
        for step in steps:
            smaller = step.build()
            if smaller is None or step.key in self._tried:
                continue
            if self._left <= 0:
                return False
            self._left -= 1
            self._tried.add(step.key)
            if self._still(smaller):
                self.parts = Parts(smaller, step.arrays)
                return True
        return False


def _fewer(parts: Parts) -> Iterator[Parts]:
    """Yield cases that have one input, one token per input or one dimension fewer."""
    case, arrays = parts.case, parts.arrays
    problem, tokens = case.problem, "X" if "X" in arrays else "keys"
    for i in reversed(range(problem.n if problem.n > 1 else 0)):
        rows = [name for name in ("X", "queries", "Y", "keys", "scores") if name in arrays]
        alpha = None if case.alpha is None else np.delete(case.alpha, i)
        yield parts.replace(alpha, **{name: np.delete(arrays[name], i, axis=0) for name in rows})
    for dropped in _tokens_to_drop(case) if problem.T > 2 else ():
        is_kept = np.ones((problem.n, problem.T), dtype=bool)
        is_kept[np.arange(problem.n), dropped] = False
        alpha = None if case.alpha is None else case.alpha - (case.alpha > dropped)
        rows = [name for name in ("X", "keys", "scores") if name in arrays]
        shorter = {
            name: arrays[name][is_kept].reshape(problem.n, problem.T - 1, *arrays[name].shape[2:]) for name in rows
        }
        yield parts.replace(alpha, **shorter)
    if "queries" in arrays:
        yield from _narrower(parts)
        return
    for j in reversed(range(problem.d if problem.d > 1 else 0)):
        # Remove a coordinate of the keys and the same coordinate of every vector with d entries.
        vectors = {k: np.delete(v, j, axis=-1) for k, v in arrays.items() if _among_keys(k, v, problem.d)}
        if "W" in arrays:
            yield parts.replace(W=np.delete(arrays["W"], j, axis=0), **vectors)
        else:
            more = {"v": np.delete(arrays["v"], j)} if "v" in arrays else {}
            yield parts.replace(**{tokens: np.delete(arrays[tokens], j, axis=-1)}, **more, **vectors)
    if "W" in arrays and arrays["X"].shape[2] > 1:
        for j in reversed(range(arrays["X"].shape[2])):
            yield parts.replace(**{name: np.delete(arrays[name], j, axis=-1) for name in ("X", "v", "W")})


def _narrower(parts: Parts) -> Iterator[Parts]:
    """Yield cases with one dimension of the tokens or queries removed, and the same row or column of the start W(0)."""
    arrays = parts.arrays
    d, e = arrays["X"].shape[2], arrays["queries"].shape[1]
    W0 = arrays["start"].reshape(d, e) if "start" in arrays else np.zeros((d, e))

    def start(j: int, axis: int) -> dict[str, Any]:
        return {"start": np.delete(W0, j, axis=axis).ravel()} if "start" in arrays else {}

    for j in reversed(range(d if d > 1 else 0)):
        yield parts.replace(X=np.delete(arrays["X"], j, axis=2), v=np.delete(arrays["v"], j), **start(j, 0))
    for j in reversed(range(e if e > 1 else 0)):
        yield parts.replace(queries=np.delete(arrays["queries"], j, axis=1), **start(j, 1))


def _tokens_to_drop(case: Case) -> Iterator[Int64[np.ndarray, "n"]]:
    """Yield choices of one token to remove from each input, never the chosen token of the input."""
    problem = case.problem
    rows = [[t for t in reversed(range(problem.T)) if t != a] for a in case.chosen_tokens]
    for dropped in islice(product(*rows), MOST_DROPS):
        yield np.array(dropped)


def _among_keys(name: str, value: Any, d: int) -> bool:
    return name not in ("X", "Y", "v", "W", "keys", "scores") and np.ndim(value) == 1 and np.shape(value) == (d,)


def _plainer(parts: Parts) -> Iterator[Parts]:
    """Yield cases with linear loss, seed 0, simpler scores, or an input's keys shifted so that the chosen key is 0."""
    case, arrays = parts.case, parts.arrays
    if case.problem.loss.name != SIMPLEST_LOSS:
        loss = loss_named(SIMPLEST_LOSS)
        yield Parts(case.replace(problem=replace(case.problem, loss=loss)), arrays)
    if case.seed:
        yield Parts(case.replace(seed=0), arrays)
    if "scores" in arrays:
        ranks = np.array([np.unique(row, return_inverse=True)[1] for row in arrays["scores"]], dtype=np.float64)
        yield parts.replace(scores=ranks)
        yield parts.replace(
            scores=np.unique(arrays["scores"], return_inverse=True)[1].reshape(ranks.shape).astype(np.float64)
        )
        lowest = arrays["scores"].min(axis=1, keepdims=True)
        if lowest.any():
            yield parts.replace(scores=arrays["scores"] - lowest)
        sizes = np.abs(arrays["scores"][arrays["scores"] != 0])
        if sizes.size and sizes.min() != 1:
            yield parts.replace(scores=arrays["scores"] / sizes.min())
    if "keys" in arrays:
        chosen = np.take_along_axis(arrays["keys"], case.chosen_tokens[:, None, None], axis=1)
        for i in range(case.problem.n):
            moved = arrays["keys"].copy()
            moved[i] -= chosen[i]
            yield parts.replace(keys=moved)


def _rounded_arrays(parts: Parts) -> Iterator[Parts]:
    """Yield cases with a whole array rounded, either as it is or after multiplication by a factor."""
    for name, array in parts.arrays.items():
        if name == "Y" or not np.size(array):
            continue
        candidates = [np.zeros_like(array), np.rint(array), np.rint(2 * array) / 2, np.rint(10 * array) / 10]
        # If only ratios of entries matter, a multiple of the array may have simpler numbers.
        candidates += [np.rint(array * factor) for factor in (2, 4, 5, 8, 10, 20, 100)]
        for rounded in candidates:
            if sum(map(_complexity, rounded.flat)) < sum(map(_complexity, np.asarray(array).flat)):
                yield parts.replace(**{name: rounded})


def _simpler_values(parts: Parts) -> Iterator[Parts]:
    """Yield cases with all entries of the same value replaced by a simpler number, so that ties remain ties."""
    for name, array in parts.arrays.items():
        if name == "Y":
            continue
        for x in np.unique(array):
            if np.count_nonzero(array == x) > 1:
                for simpler in _simpler(float(x)):
                    yield parts.replace(**{name: np.where(array == x, simpler, array)})


def _simpler_entries(parts: Parts) -> Iterator[Parts]:
    """Yield cases with one entry replaced by a simpler number."""
    for name, array in parts.arrays.items():
        if name == "Y":
            continue
        for index in np.ndindex(np.shape(array)):
            for simpler in _simpler(float(np.asarray(array)[index])):
                changed = np.array(array, dtype=np.float64)
                changed[index] = simpler
                yield parts.replace(**{name: changed})


def _simpler(x: float) -> list[float]:
    """Return simpler numbers near x, the simplest first."""
    sign = float(np.sign(x))
    near = [0.0, sign, 2 * sign, x - sign, float(np.rint(x / 2))]  # the last two are integers nearer to zero
    near += [float(cut(unit * x)) / unit for unit in (1, 2, 4, 10) for cut in (np.floor, np.ceil)]
    near += [float(np.rint(x / factor)) for factor in (10, 1000, 100000)]
    near += [float(np.rint(x)) + step for step in (-1.0, -0.5, 0.5, 1.0)]
    complexity = _complexity(x)
    return sorted({y for y in near if np.isfinite(y) and _complexity(y) < complexity}, key=_complexity)


def _complexity(x: float) -> float:
    """Return the complexity of a number; simplification prefers numbers of lower complexity.

    In increasing order: small integers, halves, larger integers with few digits, other fractions and decimals. A minus
    sign adds a little.
    """
    size, sign = abs(x), 0.25 * (x < 0)
    if size == np.rint(size):
        digits = len(f"{size:.0f}".rstrip("0"))
        return float(sign + (size if size <= 10 else 10 + 3 * np.log10(size / 10) + digits))
    for unit, base in ((2, 4.0), (4, 15.0), (8, 25.0)):
        if unit * size == np.rint(unit * size):
            # A half-integer shall be more complex than the integer below it.
            long = 10 + 3 * np.log10(size / 10) + len(f"{size:g}") if size > 10 else size
            return float(sign + base + long)
    return float(100 + sign + len(repr(float(x))))

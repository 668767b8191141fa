"""Make a counterexample small and round: fewer inputs, tokens, dimensions; zeros, ones, integers, halves.

Hypothesis shrinks what a strategy draws, this shrinks what it built: the numbers that a reader sees. Every step is
kept only if the result is still a counterexample, so the order of the steps matters and nothing else.
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
"""Cases tried at most: a count, because a time limit would not be repeatable."""
MOST_DROPS = 64
"""Ways to leave out one token of each input that are tried."""
SIMPLEST_LOSS = "correlation"


@dataclass(frozen=True)
class Parts:
    """A case as named arrays, to be changed one by one.

    ``arrays`` holds keys and scores, or X, Y, v and W or queries; further arrays stand beside them.
    """

    case: Case
    arrays: dict[str, Any]

    @classmethod
    def of(cls, case: Case) -> Parts:
        """The arrays of a case; those of the dataset where the problem is made from it."""
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
        made = data if "X" in arrays and "queries" not in arrays else None
        return cls(case.replace(dataset=made), arrays | dict(case.arrays))

    def build(self) -> Case | None:
        """The case; ``None`` if the arrays make none."""
        held = dict(self.arrays)
        loss = self.case.problem.loss
        made: dict[str, Any] = {"dataset": None, "queried": None}
        try:
            if "queries" in held:
                X, queries, Y, v = (held.pop(name) for name in ("X", "queries", "Y", "v"))
                made["queried"] = QueryDataset(X, queries, Y, v, loss)
            elif "X" in held:
                made["dataset"] = Dataset(held.pop("X"), held.pop("Y"), held.pop("v"), held.pop("W", None), loss)
            of = made["queried"] or made["dataset"]
            made["problem"] = of.problem if of else Problem(held.pop("keys"), held.pop("scores"), loss)
        except InvalidInput:
            return None
        return self.case.replace(**made, start=held.pop("start", None), arrays=MappingProxyType(held))

    @property
    def key(self) -> tuple[Any, ...]:
        """Tells cases apart."""
        alpha = None if self.case.alpha is None else self.case.alpha.tobytes()
        held = tuple((k, np.shape(v), np.asarray(v).tobytes()) for k, v in self.arrays.items())
        return held, alpha, self.case.problem.loss.name, self.case.seed

    def replace(self, alpha: Any = None, **arrays: Any) -> Parts:
        """With some arrays (and α) replaced."""
        case = self.case if alpha is None else self.case.replace(alpha=alpha)
        # + 0.0 makes −0.0 a plain zero.
        return Parts(case, {**self.arrays, **{name: value + 0.0 for name, value in arrays.items()}})


def simplify_counterexample(case: Any, still: Callable[[Any], bool]) -> Any:
    """The simplest counterexample that single steps lead to.

    Args:
        case: a counterexample.
        still: whether a case is one.
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
    """The same for data of another paper, which know what is simpler."""
    for _ in range(STEPS):
        step = next((step for step in islice(case.simpler(), STEPS) if still(step)), None)
        if step is None:
            break
        case = step
    return case


class _Greedy:
    """Takes every step that is still a counterexample; no case is tried twice."""

    def __init__(self, parts: Parts, still: Callable[[Case], bool]) -> None:
        self.parts = parts
        self._still = still
        self._left = STEPS
        self._tried: set[tuple[Any, ...]] = set()

    def pass_over(self) -> bool:
        """Every kind of step in turn, each until it leads no further; whether anything changed."""
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
    """One input, one token or one dimension less."""
    case, held = parts.case, parts.arrays
    problem, tokens = case.problem, "X" if "X" in held else "keys"
    for i in reversed(range(problem.n if problem.n > 1 else 0)):
        rows = [name for name in ("X", "queries", "Y", "keys", "scores") if name in held]
        alpha = None if case.alpha is None else np.delete(case.alpha, i)
        yield parts.replace(alpha, **{name: np.delete(held[name], i, axis=0) for name in rows})
    for dropped in _tokens_to_drop(case) if problem.T > 2 else ():
        kept = np.ones((problem.n, problem.T), dtype=bool)
        kept[np.arange(problem.n), dropped] = False
        alpha = None if case.alpha is None else case.alpha - (case.alpha > dropped)
        rows = [name for name in ("X", "keys", "scores") if name in held]
        shorter = {name: held[name][kept].reshape(problem.n, problem.T - 1, *held[name].shape[2:]) for name in rows}
        yield parts.replace(alpha, **shorter)
    if "queries" in held:
        yield from _narrower(parts)
        return
    for j in reversed(range(problem.d if problem.d > 1 else 0)):
        # A coordinate of the keys, and of all that lives among them.
        vectors = {k: np.delete(v, j, axis=-1) for k, v in held.items() if _among_keys(k, v, problem.d)}
        if "W" in held:
            yield parts.replace(W=np.delete(held["W"], j, axis=0), **vectors)
        else:
            more = {"v": np.delete(held["v"], j)} if "v" in held else {}
            yield parts.replace(**{tokens: np.delete(held[tokens], j, axis=-1)}, **more, **vectors)
    if "W" in held and held["X"].shape[2] > 1:
        for j in reversed(range(held["X"].shape[2])):
            yield parts.replace(**{name: np.delete(held[name], j, axis=-1) for name in ("X", "v", "W")})


def _narrower(parts: Parts) -> Iterator[Parts]:
    """One dimension less of tokens or of queries, with the row or the column of W(0)."""
    held = parts.arrays
    d, e = held["X"].shape[2], held["queries"].shape[1]
    W0 = held["start"].reshape(d, e) if "start" in held else np.zeros((d, e))

    def start(j: int, axis: int) -> dict[str, Any]:
        return {"start": np.delete(W0, j, axis=axis).ravel()} if "start" in held else {}

    for j in reversed(range(d if d > 1 else 0)):
        yield parts.replace(X=np.delete(held["X"], j, axis=2), v=np.delete(held["v"], j), **start(j, 0))
    for j in reversed(range(e if e > 1 else 0)):
        yield parts.replace(queries=np.delete(held["queries"], j, axis=1), **start(j, 1))


def _tokens_to_drop(case: Case) -> Iterator[Int64[np.ndarray, "n"]]:
    """One token of each input, none of them chosen."""
    problem = case.problem
    rows = [[t for t in reversed(range(problem.T)) if t != a] for a in case.chosen_tokens]
    for dropped in islice(product(*rows), MOST_DROPS):
        yield np.array(dropped)


def _among_keys(name: str, value: Any, d: int) -> bool:
    return name not in ("X", "Y", "v", "W", "keys", "scores") and np.ndim(value) == 1 and np.shape(value) == (d,)


def _plainer(parts: Parts) -> Iterator[Parts]:
    """The linear loss, seed 0, scores by rank or in smaller units, the chosen token at the origin."""
    case, held = parts.case, parts.arrays
    if case.problem.loss.name != SIMPLEST_LOSS:
        loss = loss_named(SIMPLEST_LOSS)
        yield Parts(case.replace(problem=replace(case.problem, loss=loss)), held)
    if case.seed:
        yield Parts(case.replace(seed=0), held)
    if "scores" in held:
        ranks = np.array([np.unique(row, return_inverse=True)[1] for row in held["scores"]], dtype=np.float64)
        yield parts.replace(scores=ranks)
        yield parts.replace(
            scores=np.unique(held["scores"], return_inverse=True)[1].reshape(ranks.shape).astype(np.float64)
        )
        lowest = held["scores"].min(axis=1, keepdims=True)
        if lowest.any():
            yield parts.replace(scores=held["scores"] - lowest)
        sizes = np.abs(held["scores"][held["scores"] != 0])
        if sizes.size and sizes.min() != 1:
            yield parts.replace(scores=held["scores"] / sizes.min())
    if "keys" in held:
        chosen = np.take_along_axis(held["keys"], case.chosen_tokens[:, None, None], axis=1)
        for i in range(case.problem.n):
            moved = held["keys"].copy()
            moved[i] -= chosen[i]
            yield parts.replace(keys=moved)


def _rounded_arrays(parts: Parts) -> Iterator[Parts]:
    """A whole array rounded, in its own units or in smaller ones."""
    for name, array in parts.arrays.items():
        if name == "Y" or not np.size(array):
            continue
        candidates = [np.zeros_like(array), np.rint(array), np.rint(2 * array) / 2, np.rint(10 * array) / 10]
        # Decimals whose ratios matter: the same in larger units.
        candidates += [np.rint(array * factor) for factor in (2, 4, 5, 8, 10, 20, 100)]
        for rounded in candidates:
            if sum(map(_complexity, rounded.flat)) < sum(map(_complexity, np.asarray(array).flat)):
                yield parts.replace(**{name: rounded})


def _simpler_values(parts: Parts) -> Iterator[Parts]:
    """All entries of one value replaced by a simpler number: ties stay ties."""
    for name, array in parts.arrays.items():
        if name == "Y":
            continue
        for x in np.unique(array):
            if np.count_nonzero(array == x) > 1:
                for simpler in _simpler(float(x)):
                    yield parts.replace(**{name: np.where(array == x, simpler, array)})


def _simpler_entries(parts: Parts) -> Iterator[Parts]:
    """One entry replaced by a simpler number."""
    for name, array in parts.arrays.items():
        if name == "Y":
            continue
        for index in np.ndindex(np.shape(array)):
            for simpler in _simpler(float(np.asarray(array)[index])):
                changed = np.array(array, dtype=np.float64)
                changed[index] = simpler
                yield parts.replace(**{name: changed})


def _simpler(x: float) -> list[float]:
    """Numbers that are easier to read, the easiest first."""
    sign = float(np.sign(x))
    near = [0.0, sign, 2 * sign, x - sign, float(np.rint(x / 2))]  # the last two let integers walk towards zero
    near += [float(cut(unit * x)) / unit for unit in (1, 2, 4, 10) for cut in (np.floor, np.ceil)]
    near += [float(np.rint(x / factor)) for factor in (10, 1000, 100000)]
    near += [float(np.rint(x)) + step for step in (-1.0, -0.5, 0.5, 1.0)]
    own = _complexity(x)
    return sorted({y for y in near if np.isfinite(y) and _complexity(y) < own}, key=_complexity)


def _complexity(x: float) -> float:
    """Zero, small integers, halves, larger integers with few digits, decimals; the sign costs a little."""
    size, sign = abs(x), 0.25 * (x < 0)
    if size == np.rint(size):
        digits = len(f"{size:.0f}".rstrip("0"))
        return float(sign + (size if size <= 10 else 10 + 3 * np.log10(size / 10) + digits))
    for unit, base in ((2, 4.0), (4, 15.0), (8, 25.0)):
        if unit * size == np.rint(unit * size):
            # A long number with a half is longer than the long number.
            long = 10 + 3 * np.log10(size / 10) + len(f"{size:g}") if size > 10 else size
            return float(sign + base + long)
    return float(100 + sign + len(repr(float(x))))

"""Metamorphic relations: changes of the data under which the verdict on a statement must stay the same.

The function of a :class:`Relation` takes data and a random generator, and returns the changed data, or None if the
change does not apply, for instance because it would not be exact in float64. Nothing is rounded, so ties and neighbours
of tokens do not change. Starts, radii, step sizes and directions are changed together with the data.

A statement's ``varies`` lists the relations that may change the verdict on the statement, each with a reason.

Reference: Chen, Cheung, Yiu, *Metamorphic Testing: A New Approach for Generating Next Test Cases*, 1998.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import Case, scale_exactly
from generators.labelled_features import LabelledFeatures
from generators.mixing_assumptions import PENALTY
from generators.next_tokens import NextTokens
from generators.optimal_sets import HEAD_ARRAYS
from generators.subject import KIND, Subject
from generators.user_data import as_text, subject_of
from reference_attention.errors import InvalidInput, suggest
from reference_attention.files import from_json, numbers
from reference_attention.next_token.attention_samples import ABSENT
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset

Array = Float64[np.ndarray, "..."]
Change = Callable[[Any, np.random.Generator], Subject | None]
Linear = Callable[[Array], Array]
"""The type of linear maps of vectors along the last axis; they raise :class:`Inexact` instead of rounding a number."""

PROMPTS = ("q", "q1", "q2", "q_other", "p_1", "p_2", "prompt", "start_prompts")
"""Names of arrays of a case that hold prompts along their last axis."""
LENGTHS = ("cone_radius", "prompt_radii")
"""Names of arrays of a case that hold norms ‖p‖ of prompts."""
HEADS = ("start_head",)
"""Names of arrays of a case that hold heads v."""
FACTORS = ("K0", "Q0")
KNOWN = {*PROMPTS, *LENGTHS, *HEADS, *FACTORS, *HEAD_ARRAYS, PENALTY, "u", "eta", "cone_mu", "head_radii"}
"""Names of all arrays that relations can change; no relation applies to a case with an array of another name."""
DIRECTIONS = ("q", "q1", "q2", "q_other")
"""Names of arrays that hold directions, whose norm does not matter."""
LINEAR_LOSS = "correlation"
_NONE: Mapping[str, str] = MappingProxyType({})


class Inexact(Exception):
    """Error raised if a change of the data would round a number, or cannot be made at all."""


@dataclass(frozen=True)
class Relation:
    """A change of the data that must not change the verdict on a statement whose ``varies`` does not list the relation.

    Attributes:
        name: the name in kebab-case, under which reports count uses of the relation.
        says: a description of the change, as a clause.
        change: the function (data, random generator) → changed data, or None if the change does not apply.
    """

    name: str
    says: str
    change: Change

    def apply(self, subject: Subject) -> Subject | None:
        """Return the changed data, with random numbers from the seed of the data; None if the change does not apply."""
        rng = np.random.default_rng((subject.seed, *self.name.encode()))
        try:
            return self.change(subject, rng)
        except (Inexact, InvalidInput):
            # The change would round a number, or the changed data are invalid.
            return None


def relations_on(subject: Subject, varies: Collection[str] = ()) -> list[tuple[Relation, Subject]]:
    """Return the relations that apply to the data, each with the changed data.

    Args:
        subject: the data.
        varies: the names of relations to leave out, because they may change the verdict on a statement.
    """
    return [*_applicable(subject, varies, RELATIONS)]


def relation_of(subject: Subject, varies: Collection[str] = ()) -> tuple[Relation, Subject] | None:
    """Return a random one of :func:`relations_on`, drawn with the seed of the data; None if no relation applies."""
    order = np.random.default_rng((subject.seed, len(RELATIONS))).permutation(len(RELATIONS))
    return next(_applicable(subject, varies, [RELATIONS[k] for k in order]), None)


def _applicable(
    subject: Subject, varies: Collection[str], relations: Iterable[Relation]
) -> Iterator[tuple[Relation, Subject]]:
    for relation in relations:
        if relation.name not in varies:
            changed = relation.apply(subject)
            if changed is not None:
                yield relation, changed


def relation_named(name: str) -> Relation:
    """Return the relation with the given name.

    Raises:
        InvalidInput: no relation has this name.
    """
    by_name = {relation.name: relation for relation in RELATIONS}
    if name not in by_name:
        raise InvalidInput(f"{name!r} is not a relation.{suggest(name, by_name)} Relations are {', '.join(by_name)}.")
    return by_name[name]


# Exact arithmetic on arrays of floats.


def _exact_sum(a: Array, b: Array) -> Array:
    total = a + b
    part = total - a
    if ((a - (total - part)) + (b - part)).any() or not np.isfinite(total).all():
        raise Inexact
    return np.asarray(total)


def _scale(value: Array, factor: float) -> Array:
    """Return the value times a power of two; raise InvalidInput if the product is not exact."""
    return scale_exactly("data", value, factor)


def _signed_permutation(d: int, rng: np.random.Generator) -> Linear:
    order, signs = rng.permutation(d), rng.choice((1.0, -1.0), d)
    return lambda x: np.asarray(x[..., order] * signs + 0.0)


def _with_zero(x: Array) -> Array:
    return np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1)


def _rotation(d: int, rng: np.random.Generator) -> Linear:
    """Return the map that rotates the plane of two random axes by arctan(4/3), and multiplies all coordinates by 5."""
    if d < 2:
        raise Inexact
    i, j = rng.permutation(d)[:2]

    def rotate(x: Array) -> Array:
        a, b = x[..., i], x[..., j]
        turned = _exact_sum(_exact_sum(x, x), _exact_sum(x, x))
        turned = _exact_sum(turned, x)
        three_a, three_b = _exact_sum(2 * a, a), _exact_sum(2 * b, b)
        turned[..., i], turned[..., j] = _exact_sum(three_a, -4 * b), _exact_sum(4 * a, three_b)
        return np.asarray(turned + 0.0)

    return rotate


def _reflection(d: int, rng: np.random.Generator) -> Linear:
    """Return the reflection I − ½uuᵀ for a random u with four entries ±1 and zeros elsewhere, an orthogonal map.

    If there are fewer than four axes, the map first adds coordinates that are zero.
    """
    size = max(d, 4)
    axes, signs = rng.permutation(size)[:4], rng.choice((1.0, -1.0), 4)

    def reflect(x: Array) -> Array:
        mirrored = np.concatenate([x, np.zeros((*x.shape[:-1], size - d))], axis=-1)
        a, b, c, e = np.moveaxis(mirrored[..., axes] * signs, -1, 0)
        half = _scale(_exact_sum(_exact_sum(a, b), _exact_sum(c, e)), 0.5)
        for axis, sign in zip(axes, signs, strict=True):
            mirrored[..., axis] = _exact_sum(mirrored[..., axis], -sign * half)
        return np.asarray(mirrored + 0.0)

    return reflect


# Changes of a case of attention.


def _data_of(case: Case) -> Dataset | QueryDataset | SequenceDataset | None:
    """Return the tokens, head and labels from which keys and scores were computed; None if the case has only these."""
    return case.queried or case.sequence or case.dataset


@dataclass(frozen=True, eq=False)
class _Values:
    """A case that relations can change, with methods that return the case with some parts replaced."""

    case: Case

    def __post_init__(self) -> None:
        case = self.case
        unknown = {*case.arrays} - KNOWN
        data = _data_of(case)
        problem = None if data is None else data.problem
        same = problem is None or (
            np.array_equal(problem.keys, case.problem.keys) and np.array_equal(problem.scores, case.problem.scores)
        )
        known_values = isinstance(data, SequenceDataset) and data.values is not None
        if unknown or not same or known_values or (data is None and case.problem.factors is not None):
            raise Inexact

    def with_data(self, data: Dataset | QueryDataset | SequenceDataset, **changed: Any) -> Case:
        """Return the case with another dataset of tokens, and with the problem computed from that dataset."""
        name = "sequence" if isinstance(data, SequenceDataset) else "dataset"
        name = "queried" if isinstance(data, QueryDataset) else name
        return self.case.replace(**{name: data, "problem": data.problem}, **changed)

    def with_problem(self, keys: Array, scores: Array, **changed: Any) -> Case:
        return self.case.replace(problem=Problem(keys, scores, self.case.problem.loss), **changed)

    def arrays(self, **by_name: Linear) -> Mapping[str, Array]:
        """Return the arrays of the case, with each given function applied to the array of the same name."""
        arrays = {name: np.asarray(x) for name, x in self.case.arrays.items()}
        return MappingProxyType({name: by_name[name](x) if name in by_name else x for name, x in arrays.items()})


def _of_inputs(case: Case, order: Int64[np.ndarray, "m"]) -> Case:
    """Return the case with the inputs in the given order, which may repeat inputs or leave them out."""
    values, data, problem = _Values(case), _data_of(case), case.problem
    alpha = None if case.alpha is None else case.alpha[order]
    of_inputs = {name: (lambda x: x[order]) for name in ("head_features", "head_labels")}
    changed = {"alpha": alpha, "arrays": values.arrays(**of_inputs)}
    if isinstance(data, Dataset):
        return values.with_data(replace(data, X=data.X[order], Y=data.Y[order]), **changed)
    if isinstance(data, QueryDataset):
        return values.with_data(replace(data, X=data.X[order], queries=data.queries[order], Y=data.Y[order]), **changed)
    if isinstance(data, SequenceDataset):
        reordered = replace(data, X=data.X[order], queries=data.queries[order], Y=data.Y[order], mask=data.mask[order])
        return values.with_data(reordered, **changed)
    return values.with_problem(problem.keys[order], problem.scores[order], **changed)


def _of_tokens(case: Case, order: Int64[np.ndarray, "n T"]) -> Case:
    """Return the case with the tokens of each input in the given order."""
    values, data, problem = _Values(case), _data_of(case), case.problem
    rows = np.arange(len(order))[:, None]
    alpha = None if case.alpha is None else np.argmax(order == case.alpha[:, None], axis=1).astype(np.int64)
    changed: dict[str, Any] = {"alpha": alpha, "arrays": values.arrays(head_features=lambda x: x[rows, order])}
    if isinstance(data, SequenceDataset):
        mask = np.take_along_axis(data.mask, order[:, None, :], axis=2)
        return values.with_data(replace(data, X=data.X[rows, order], mask=mask), **changed)
    if data is not None:
        return values.with_data(replace(data, X=data.X[rows, order]), **changed)
    return values.with_problem(problem.keys[rows, order], problem.scores[rows, order], **changed)


def _in_coordinates(case: Case, of_prompts: Linear | None, of_tokens: Linear | None, unit: float = 1.0) -> Case:
    """Apply an orthogonal map to tokens, and ``unit`` times an orthogonal map to keys.

    Args:
        case: the case.
        of_prompts: the map of keys, and of directions; None for the identity. Other prompts would need this map divided
            by unit²; so unless unit = 1, the change does not apply to a case with other prompts.
        of_tokens: the map of tokens and heads; None for the identity.
        unit: the factor of the map of keys.
    """
    values, data, problem = _Values(case), _data_of(case), case.problem
    keys, tokens = of_prompts or (lambda x: x), of_tokens or (lambda x: x)
    if unit != 1.0:
        fixed = {"eta", *LENGTHS, *FACTORS, *PROMPTS} - {*DIRECTIONS}
        if fixed & {*case.arrays} or (case.start is not None and case.start.any()):
            raise Inexact

    prompts, heads = keys, tokens
    if isinstance(data, QueryDataset | SequenceDataset):
        d, e = data.shape

        def prompts(x: Array) -> Array:
            W = keys(x.reshape(*x.shape[:-1], d, e))
            W = np.swapaxes(tokens(np.swapaxes(W, -1, -2)), -1, -2)
            return np.ascontiguousarray(W).reshape(*x.shape[:-1], -1)

    elif isinstance(data, Dataset) and data.W is None and of_tokens is None:
        heads = lambda x: x  # noqa: E731  W is written down, so that only keys are turned
    moved = dict.fromkeys(PROMPTS, prompts) | dict.fromkeys(HEADS, heads)
    moved |= {"K0": lambda x: tokens(x.T).T, "Q0": lambda x: keys(x.T).T}
    start = None if case.start is None else prompts(case.start)
    changed = {"start": start, "arrays": values.arrays(**moved)}
    if isinstance(data, Dataset):
        W = np.ascontiguousarray(keys(tokens(data.key_query).T).T)
        turned = values.with_data(replace(data, X=tokens(data.X), v=tokens(data.v), W=W), **changed)
        if not np.array_equal(turned.problem.keys, keys(problem.keys)):
            # The keys X Wᵀ are rounded, and in the new coordinates they are rounded differently.
            raise Inexact
        return turned
    if data is not None:
        others = replace(data, X=tokens(data.X), v=tokens(data.v), queries=keys(data.queries))
        return values.with_data(others, **changed)
    return values.with_problem(keys(problem.keys), problem.scores, **changed)


def _sizes(case: Case) -> tuple[int, int]:
    """Return the dimension of keys (of queries, if W is trained), and that of tokens, 0 if there are none."""
    data = _data_of(case)
    if data is None:
        return case.problem.d, 0
    return (len(data.key_query) if isinstance(data, Dataset) else data.shape[1]), data.X.shape[2]


def _case_in_coordinates(
    case: Case, rng: np.random.Generator, map_of: Callable[[int, np.random.Generator], Linear], unit: float = 1.0
) -> Case:
    """Change the coordinates of keys, of tokens, or of both, by maps that ``map_of`` returns for a dimension."""
    d, token_size = _sizes(case)
    changed = int(rng.integers(3)) if token_size and unit == 1.0 else 0
    of_prompts = map_of(d, rng) if changed != 1 else None
    of_tokens = map_of(token_size, rng) if changed != 0 else None
    return _in_coordinates(case, of_prompts, of_tokens, unit)


def _case_shifted(case: Case, rng: np.random.Generator) -> Case | None:
    """Add a vector to all keys of each input, which changes neither the softmax weights nor the risk L."""
    values, data, problem = _Values(case), _data_of(case), case.problem
    if "eta" in case.arrays:
        # The bound 1/L_p on a step size (Lemma 6) depends on the keys, not only on their differences.
        return None
    if data is None:
        by = rng.integers(-3, 4, (problem.n, 1, problem.d)) * problem.key_scale
        return values.with_problem(_exact_sum(problem.keys, by), problem.scores) if by.any() else None
    scale = 2.0 ** np.floor(np.log2(max(np.abs(data.X).max(), 1e-300)))
    # A shift in coordinates in which the head is zero changes no score.
    by = np.where(data.v == 0, rng.integers(-3, 4, (len(data.X), 1, data.X.shape[2])) * scale, 0.0)
    if not by.any():
        return None
    shifted = values.with_data(replace(data, X=_exact_sum(data.X, by)))
    # If the keys X Wᵀ are rounded, differences of keys may change; in that case the relation does not apply.
    old, new = ((keys - keys[:, :1]) for keys in (problem.keys, shifted.problem.keys))
    return shifted if np.array_equal(old, new) and problem.factors is None else None


def _in_units(case: Case, keys: float, tokens: float = 1.0, scores: float = 1.0) -> Case:
    """Multiply keys, tokens and scores by the powers of two ``keys``, ``tokens`` and ``scores``."""
    values, data, problem = _Values(case), _data_of(case), case.problem
    if scores != 1.0 and any(name in case.arrays for name in HEAD_ARRAYS):
        raise Inexact
    by = dict.fromkeys((*LENGTHS, *PROMPTS), 1 / keys) | {"eta": 1 / keys**2 / scores, "Q0": 1 / keys}
    by |= dict.fromkeys(("head_radii", *HEADS), scores / tokens) | {PENALTY: scores / tokens**2}
    # Directions are not multiplied, since their length does not matter.
    arrays = values.arrays(
        **{name: (lambda x, f=factor: _scale(x, f)) for name, factor in by.items() if name not in DIRECTIONS}
    )
    changed = {"arrays": arrays, "start": None if case.start is None else _scale(case.start, 1 / keys)}
    if data is None:
        return values.with_problem(_scale(problem.keys, keys), _scale(problem.scores, scores), **changed)
    X, v = _scale(data.X, tokens), _scale(data.v, scores / tokens)
    if isinstance(data, Dataset):
        W = None if data.W is None and keys == tokens else _scale(data.key_query, keys / tokens)
        return values.with_data(replace(data, X=X, v=v, W=W), **changed)
    return values.with_data(replace(data, X=X, v=v, queries=_scale(data.queries, keys / tokens)), **changed)


def _power(rng: np.random.Generator) -> float:
    return float(2.0 ** (rng.choice((-1, 1)) * rng.integers(1, 21)))


# The changes, each for every kind of data to which it applies.


def _inputs_permuted(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if isinstance(subject, Case):
        order = _shuffled(_inputs(subject), rng)
        return None if order is None else _of_inputs(subject, order)
    if isinstance(subject, LabelledFeatures):
        order = _shuffled(len(subject.features), rng)
        return None if order is None else _labelled_inputs(subject, order)
    if isinstance(subject, NextTokens):
        order = _shuffled(len(subject.problem_rows), rng)
        return None if order is None else _contexts(subject, order)
    return None


def _input_twice(subject: Subject, rng: np.random.Generator) -> Subject | None:
    def twice(n: int) -> Int64[np.ndarray, "m"]:
        every = np.arange(n)
        return np.tile(every, 2) if rng.random() < 0.5 else np.repeat(every, 2)

    if isinstance(subject, Case):
        return _of_inputs(subject, twice(_inputs(subject)))
    if isinstance(subject, LabelledFeatures):
        return _labelled_inputs(subject, twice(len(subject.features)))
    if isinstance(subject, NextTokens):
        return _contexts(subject, twice(len(subject.problem_rows)))
    return None


def _inputs(case: Case) -> int:
    data = _data_of(case)
    return case.problem.n if data is None else len(data.X)


def _shuffled(n: int, rng: np.random.Generator) -> Int64[np.ndarray, "n"] | None:
    order = rng.permutation(n)
    if n < 2:
        return None
    return order if (order != np.arange(n)).any() else np.roll(order, 1)


def _labelled_inputs(case: LabelledFeatures, order: Int64[np.ndarray, "m"]) -> LabelledFeatures:
    return case.replace(features=case.features[order], labels=case.labels[order], counts=case.counts[order])


def _contexts(case: NextTokens, order: Int64[np.ndarray, "m"]) -> NextTokens:
    windows = tuple(case.windows[k] for k in order) if case.windows else ()
    if case.samples is not None and case.labels is not None:
        reordered = case.replace(samples=case.samples[order], labels=case.labels[order], windows=windows)
    else:
        assert case.counts is not None
        reordered = case.replace(embeddings=case.embeddings[order], counts=case.counts[order], windows=windows)
    return reordered


def _tokens_permuted(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if isinstance(subject, Case):
        # The optimal token is the first of the tokens with the highest score, so tokens of equal score keep their
        # order.
        data = subject.sequence
        X = subject.problem.keys if subject.sequence is None else subject.sequence.X
        scores = subject.problem.scores if data is None else Dataset(X, np.ones(len(X)), data.v).problem.scores
        order = np.array([rng.permutation(X.shape[1]) for _ in X])
        for row, row_scores in zip(order, scores, strict=True):
            for value in np.unique(row_scores):
                at = np.flatnonzero(row_scores[row] == value)
                row[at] = np.sort(row[at])
        return None if (order == np.arange(X.shape[1])).all() else _of_tokens(subject, order)
    if isinstance(subject, NextTokens) and subject.samples is not None:
        samples = subject.samples.copy()
        for row in samples:
            # The last token is the query; attention does not depend on the order of the other tokens.
            last = int(np.flatnonzero(row != ABSENT)[-1])
            row[:last] = rng.permutation(row[:last])
        return None if (samples == subject.samples).all() else subject.replace(samples=samples)
    return None


def _classes_permuted(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if isinstance(subject, LabelledFeatures):
        k, d = subject.shape
        order = _shuffled(k, rng)
        if order is None:
            return None
        start = None if subject.start is None else subject.start.reshape(k, d)[order].ravel()
        return subject.replace(labels=np.argsort(order)[subject.labels].astype(np.int64), start=start)
    if isinstance(subject, NextTokens):
        order = _shuffled(subject.tokens, rng)
        if order is None:
            return None
        names = tuple(subject.vocabulary[v] for v in order) if subject.vocabulary else ()
        if subject.samples is None or subject.labels is None:
            assert subject.counts is not None
            d = subject.embeddings.shape[1]
            start = None if subject.start is None else subject.start.reshape(-1, d)[order].ravel()
            return subject.replace(counts=subject.counts[:, order], start=start, vocabulary=names)
        place = np.argsort(order).astype(np.int64)
        samples = np.where(subject.samples == ABSENT, ABSENT, place[subject.samples])
        embeddings, labels = subject.embeddings[order], place[subject.labels]
        return subject.replace(embeddings=embeddings, samples=samples, labels=labels, vocabulary=names)
    return None


def _labels_negated(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if not isinstance(subject, Case):
        return None
    values, data = _Values(subject), _data_of(subject)
    minus: Callable[[Array], Array] = lambda x: np.asarray(0.0 - x)  # noqa: E731
    arrays = values.arrays(head_labels=minus, head_weights=minus, start_head=minus)
    headed = "head_weights" in subject.arrays
    if headed and "head_labels" not in subject.arrays:
        arrays = MappingProxyType({**arrays, "head_labels": -np.ones(subject.problem.n)})
    if data is None:
        return subject.replace(arrays=arrays) if headed else None
    if PENALTY in subject.arrays:
        return None
    return values.with_data(replace(data, Y=-data.Y, v=minus(data.v)), arrays=arrays)


def _linear_change(
    subject: Subject,
    rng: np.random.Generator,
    map_of: Callable[[int, np.random.Generator], Linear],
    unit: float = 1.0,
) -> Subject | None:
    if isinstance(subject, Case):
        return _case_in_coordinates(subject, rng, map_of, unit)
    if not isinstance(subject, LabelledFeatures | NextTokens):
        return None
    start, step = subject.start, getattr(subject, "step", 0.0)
    if unit != 1.0 and (step or (start is not None and start.any())):
        return None
    vectors = subject.features if isinstance(subject, LabelledFeatures) else subject.embeddings
    d = vectors.shape[1]
    change = map_of(d, rng)
    if isinstance(subject, LabelledFeatures):
        moved = None if start is None else change(start.reshape(-1, d)).ravel()
        return subject.replace(features=change(vectors), start=moved)
    if start is not None:
        start = change(start.reshape(-1, d))
        if subject.samples is not None:
            start = change(start.T.copy()).T
        start = np.ascontiguousarray(start).ravel()
    return subject.replace(embeddings=change(vectors), start=start)


def _axes_exchanged(subject: Subject, rng: np.random.Generator) -> Subject | None:
    return _linear_change(subject, rng, _signed_permutation)


def _reflected(subject: Subject, rng: np.random.Generator) -> Subject | None:
    return _linear_change(subject, rng, _reflection)


def _rotated(subject: Subject, rng: np.random.Generator) -> Subject | None:
    return _linear_change(subject, rng, _rotation, 5.0)


def _coordinate_of_zero(subject: Subject, rng: np.random.Generator) -> Subject | None:
    return _linear_change(subject, rng, lambda d, rng: _with_zero)


def _keys_shifted(subject: Subject, rng: np.random.Generator) -> Subject | None:
    return _case_shifted(subject, rng) if isinstance(subject, Case) else None


def _unit_of_keys(subject: Subject, rng: np.random.Generator) -> Subject | None:
    factor = _power(rng)
    if isinstance(subject, Case):
        return _in_units(subject, factor)
    if isinstance(subject, LabelledFeatures):
        start = None if subject.start is None else _scale(subject.start, 1 / factor)
        return subject.replace(features=_scale(subject.features, factor), start=start)
    if isinstance(subject, NextTokens):
        logits = factor if subject.samples is None else factor**2
        start = None if subject.start is None else _scale(subject.start, 1 / logits)
        step = float(_scale(np.array(subject.step), 1 / logits**2))
        return subject.replace(embeddings=_scale(subject.embeddings, factor), start=start, step=step)
    return None


def _unit_of_tokens(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if not isinstance(subject, Case) or _data_of(subject) is None:
        return None
    return _in_units(subject, 1.0, tokens=_power(rng))


def _unit_of_scores(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if not isinstance(subject, Case) or subject.problem.loss.name != LINEAR_LOSS:
        return None
    return _in_units(subject, 1.0, scores=_power(rng))


def _counts_doubled(subject: Subject, rng: np.random.Generator) -> Subject | None:
    if not isinstance(subject, LabelledFeatures | NextTokens) or subject.counts is None:
        return None
    return subject.replace(counts=2 * subject.counts)


def _written_and_read(subject: Subject, rng: np.random.Generator) -> Subject | None:
    """Write the data as decimal text and read them again; arrays that are exact in float32 are read as float32."""
    if not (isinstance(subject, Case) or subject.kind):
        return None
    values = from_json(as_text(subject))
    floats = {"arrays"} | {key for key, value in values.items() if isinstance(value, str | int | bool) or key == KIND}
    rounded = {key: value if key in floats else _as_float32(value) for key, value in values.items()}
    return subject_of(rounded)


def _as_float32(value: Any) -> Any:
    parsed = numbers(value)
    if not isinstance(parsed, np.ndarray | list):
        return value
    array = np.asarray(parsed)
    if array.dtype != np.float64:
        return value
    with np.errstate(over="ignore"):
        short = array.astype(np.float32)
    return short if np.array_equal(short, array) else value


RUNS: Mapping[str, str] = MappingProxyType(
    {
        "descent-selects": "normalized steps go back and forth, so that the last digits decide where a run ends",
    }
)
"""Assumptions decided by a run in floats, which may hold only before or only after a change: id → reason."""

RELATIONS: tuple[Relation, ...] = (
    Relation("inputs-permuted", "inputs are in another order", _inputs_permuted),
    Relation("tokens-permuted", "the tokens of each input are in another order", _tokens_permuted),
    Relation("classes-permuted", "classes, or tokens of the vocabulary, have a new order", _classes_permuted),
    Relation("labels-and-head-negated", "labels and head are multiplied by −1", _labels_negated),
    Relation("axes-exchanged", "axes are exchanged and some multiplied by −1", _axes_exchanged),
    Relation("reflected", "data are reflected", _reflected),
    Relation("rotated", "data are rotated and multiplied by five", _rotated),
    Relation("coordinate-of-zero", "there is one more coordinate, which is zero", _coordinate_of_zero),
    Relation("keys-shifted", "a vector is added to all keys of each input", _keys_shifted),
    Relation("unit-of-keys", "keys are in another unit", _unit_of_keys),
    Relation(
        "unit-of-tokens",
        "tokens are in another unit, and head and key-query weights in its inverse",
        _unit_of_tokens,
    ),
    Relation("unit-of-scores", "the loss is linear and scores are in another unit", _unit_of_scores),
    Relation("inputs-twice", "every input occurs twice", _input_twice),
    Relation("counts-doubled", "all counts are doubled", _counts_doubled),
    Relation(
        "written-and-read",
        "data are written as decimals and read again, as float32 where this is exact",
        _written_and_read,
    ),
)
"""All metamorphic relations."""

"""Relations: changes of data that must not change the verdict on a statement, such as another order of inputs.

A change gives the changed data, or None if it does not apply. It raises :class:`Inexact` instead of rounding a number,
so that ties and neighbours of tokens stay. Starts, radii, step sizes and directions change together with the data.

Reference: Chen, Cheung, Yiu, *Metamorphic Testing: A New Approach for Generating Next Test Cases*, 1998.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from generators.case import Case, scale_exactly
from generators.labelled_features import LabelledFeatures
from generators.mixing_assumptions import PENALTY
from generators.next_tokens import NextTokens
from generators.optimal_sets import HEAD_ARRAYS
from generators.subject import KIND, Subject
from generators.user_data import as_text, subject_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json, numbers
from reference_attention.next_token.attention_samples import ABSENT
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset

EXCEPTIONS = (  # relations that may change the verdict on statements
    ("rotated reflected coordinate-of-zero", "incremental-adam-equal-moduli", "samples get entries of several moduli"),
    ("reflected coordinate-of-zero", "lemma-10 theorem-4", "the number of dimensions matters, and this adds some"),
    ("inputs-twice", "lemma-10 theorem-4", "an input and its copy have the same rows, so that position is not general"),
    ("inputs-twice", "lemma-8", "the lemma assumes one directional neighbour, and a copy of the input has another"),
    ("inputs-twice", "lemma-5 adam-one-input mirror-one-input steepest-one-input", "it is about a single input"),
    ("inputs-twice", "ntp-overparameterized", "it is about linearly independent embeddings of contexts"),
    ("labels-and-head-negated", "lemma-11", "the lemma is stated for labels +1"),
    ("keys-shifted", "theorem-5 theorem-6 lemma-12 lemma-13 conjecture-joint-descent", "moved tokens move the head"),
    ("keys-shifted", "conjecture-mixing", "features must be affine functions of tokens, the same for all inputs"),
    ("keys-shifted unit-of-tokens", "tsvm-exact-support tsvm-mixing", "tokens are orthonormal"),
)
VARIES = {(id, name): why for names, ids, why in EXCEPTIONS for id in ids.split() for name in names.split()}
SEARCH = {  # statements with a search or a run that may find its object on only one of two equivalent cases
    **dict.fromkeys(("theorem-1", "tsvm-frobenius-path"), "in other coordinates Newton's method may end elsewhere"),
    **dict.fromkeys(("theorem-2", "descent-from-a-margin"), "the solver may be too inaccurate to compare two solvers"),
    **dict.fromkeys(("lemma-13", "theorem-5", "theorem-6"), "last digits of starts decide where a search ends"),
    "theorem-3": "R depends on n and on whether d = 1, so that a start may leave the cone",
    "conjecture-mixing": "steps oscillate across the kinks of the head, so that last digits decide where a run ends",
    "tsvm-no-stationary-point": "in other coordinates the solver takes other steps, and may leave the case undecided",
}
RUNS = {"descent-selects": "last digits decide where normalized steps end"}  # assumptions decided by a run in floats

DIRECTIONS, LENGTHS = ("q", "q1", "q2", "q_other"), ("cone_radius", "prompt_radii")  # names of arrays of a case
PROMPTS = (*DIRECTIONS, "p_1", "p_2", "prompt", "start_prompts")
KNOWN = {*PROMPTS, *LENGTHS, *HEAD_ARRAYS, PENALTY, "start_head", "u", "eta", "cone_mu", "head_radii"}
Rng = np.random.Generator
Linear = Callable[[Any], Any]  # a linear map of vectors along the last axis
_scale = partial(scale_exactly, "data")


class Inexact(Exception):
    """A change of the data would round a number, or cannot be made at all."""


def apply(name: str, subject: Subject) -> Any:
    """Return the data changed by a relation, with random numbers from their seed; None if it does not apply."""
    if name != "written-and-read" and not isinstance(subject, Case | LabelledFeatures | NextTokens):
        return None
    try:
        return RELATIONS[name](subject, np.random.default_rng((subject.seed, *name.encode())))
    except (Inexact, InvalidInput):
        return None


def relations_on(subject: Subject, id: str = "", shuffled: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the relations that apply to the data and must not change a statement's verdict, with the changed data."""
    order = np.random.default_rng((subject.seed, len(RELATIONS))).permutation(len(RELATIONS))
    names = [*RELATIONS]
    changes = ((name, apply(name, subject)) for name in ([names[k] for k in order] if shuffled else names))
    return ((name, changed) for name, changed in changes if changed is not None and (id, name) not in VARIES)


def _exact_sum(a: Any, b: Any) -> Any:
    part = (total := a + b) - a
    if ((a - (total - part)) + (b - part)).any() or not np.isfinite(total).all():
        raise Inexact
    return np.asarray(total)


def _signed_permutation(d: int, rng: Rng) -> Linear:
    order, signs = rng.permutation(d), rng.choice((1.0, -1.0), d)
    return lambda x: np.asarray(x[..., order] * signs + 0.0)


def _rotation(d: int, rng: Rng) -> Linear:
    """Return the map that rotates the plane of two random axes by arctan(4/3), and multiplies all coordinates by 5."""
    if d < 2:
        raise Inexact
    i, j = rng.permutation(d)[:2]

    def rotate(x: Any) -> Any:
        a, b = x[..., i], x[..., j]
        turned = _exact_sum(_exact_sum(_exact_sum(x, x), _exact_sum(x, x)), x)
        turned[..., i] = _exact_sum(_exact_sum(2 * a, a), -4 * b)
        turned[..., j] = _exact_sum(4 * a, _exact_sum(2 * b, b))
        return turned + 0.0

    return rotate


def _reflection(d: int, rng: Rng) -> Linear:
    """Return x ↦ x − ½uuᵀx for a random u with four entries ±1; if d < 4, coordinates that are zero are added first."""
    size = max(d, 4)
    axes, signs = rng.permutation(size)[:4], rng.choice((1.0, -1.0), 4)

    def reflect(x: Any) -> Any:
        mirrored = np.concatenate([x, np.zeros((*x.shape[:-1], size - d))], axis=-1)
        a, b, c, e = np.moveaxis(mirrored[..., axes] * signs, -1, 0)
        half = _scale(_exact_sum(_exact_sum(a, b), _exact_sum(c, e)), 0.5)
        mirrored[..., axes] = _exact_sum(mirrored[..., axes], -signs * half[..., None])
        return mirrored + 0.0

    return reflect


def _data_of(case: Any) -> Any:
    """Return tokens, head and labels, None if the case has none; raise Inexact if it has a part that is not known."""
    if not isinstance(case, Case):
        raise Inexact
    data = case.queried or case.sequence or case.dataset
    problem = case.problem if data is None else data.problem
    same = np.array_equal(problem.keys, case.problem.keys) and np.array_equal(problem.scores, case.problem.scores)
    own = case.problem.factors if data is None else getattr(data, "values", None)
    if {*case.arrays} - KNOWN or not same or own is not None:
        raise Inexact
    return data


def _with(case: Case, data: Any, maps: dict[str, Linear], keys: Any = None, scores: Any = None, **changed: Any) -> Case:
    """Return the case with other data, or other keys and scores; ``maps`` are applied to the arrays by their names."""
    changed["arrays"] = {name: maps[name](np.asarray(x)) if name in maps else x for name, x in case.arrays.items()}
    if data is None:
        return case.replace(problem=Problem(keys, scores, case.problem.loss), **changed)
    name = {QueryDataset: "queried", SequenceDataset: "sequence", Dataset: "dataset"}[type(data)]
    return case.replace(problem=data.problem, **{name: data}, **changed)


def _of_inputs(subject: Any, rng: Rng, order_of: Callable[[int, Rng], Any]) -> Any:
    data, names = subject, ("features", "labels", "counts")
    if isinstance(subject, Case):
        data, names = _data_of(subject) or subject.problem, ("X", "queries", "Y", "mask", "keys", "scores")
    elif isinstance(subject, NextTokens):
        names = ("embeddings", "counts") if subject.samples is None else ("samples", "labels")
    names = tuple(field.name for field in fields(data) if field.name in names)
    order = order_of(len(getattr(data, names[0])), rng)
    changed = {name: getattr(data, name)[order] for name in names}
    if isinstance(subject, Case):
        maps = dict.fromkeys(("head_features", "head_labels"), lambda x: x[order])
        alpha = None if subject.alpha is None else subject.alpha[order]
        data = None if data is subject.problem else replace(data, **changed)
        return _with(subject, data, maps, changed.get("keys"), changed.get("scores"), alpha=alpha)
    if isinstance(subject, NextTokens) and subject.windows:
        changed["windows"] = tuple(subject.windows[k] for k in order)
    return subject.replace(**changed)


def _shuffled(n: int, rng: Rng) -> Any:
    order = rng.permutation(n)
    if n < 2:
        raise Inexact
    return order if (order != np.arange(n)).any() else np.roll(order, 1)


def _tokens_permuted(subject: Any, rng: Rng) -> Any:
    if isinstance(subject, NextTokens) and subject.samples is not None:
        samples = subject.samples.copy()
        for row in samples:
            # The last token is the query; attention does not depend on the order of the other tokens.
            last = int(np.flatnonzero(row != ABSENT)[-1])
            row[:last] = rng.permutation(row[:last])
        return None if (samples == subject.samples).all() else subject.replace(samples=samples)
    data, of, problem = _data_of(subject), subject.sequence, subject.problem
    # The optimal token is the first of highest score, so tokens of equal score keep their order.
    X = problem.keys if of is None else of.X
    scores = problem.scores if of is None else Dataset(X, np.ones(len(X)), of.v).problem.scores
    order = np.array([rng.permutation(X.shape[1]) for _ in X])
    for row, row_scores in zip(order, scores, strict=True):
        at = np.argsort(row_scores[row], kind="stable")
        row[at] = row[at][np.lexsort((row[at], row_scores[row[at]]))]
    rows = np.arange(len(order))[:, None]
    alpha = None if subject.alpha is None else np.argmax(order == subject.alpha[:, None], axis=1).astype(np.int64)
    if data is not None:
        mask = {"mask": np.take_along_axis(of.mask, order[:, None], axis=2)} if of is not None else {}
        data = replace(data, X=data.X[rows, order], **mask)
    maps = {"head_features": lambda x: x[rows, order]}
    if (order == np.arange(X.shape[1])).all():
        return None
    return _with(subject, data, maps, problem.keys[rows, order], problem.scores[rows, order], alpha=alpha)


def _classes_permuted(subject: Any, rng: Rng) -> Any:
    if isinstance(subject, Case):
        return None
    k = subject.shape[0] if isinstance(subject, LabelledFeatures) else subject.tokens
    order = _shuffled(k, rng)
    place = np.argsort(order).astype(np.int64)
    start = None if subject.start is None else subject.start.reshape(k, -1)
    if isinstance(subject, LabelledFeatures):
        return subject.replace(labels=place[subject.labels], start=None if start is None else start[order].ravel())
    names = tuple(subject.vocabulary[v] for v in order) if subject.vocabulary else ()
    if subject.samples is None:
        start = None if start is None else start[order].ravel()
        return subject.replace(counts=subject.counts[:, order], start=start, vocabulary=names)
    samples = np.where(subject.samples == ABSENT, ABSENT, place[subject.samples])
    embeddings, labels = subject.embeddings[order], place[subject.labels]
    return subject.replace(embeddings=embeddings, samples=samples, labels=labels, vocabulary=names)


def _labels_negated(subject: Any, rng: Rng) -> Any:
    data, headed = _data_of(subject), "head_weights" in subject.arrays
    if (data is None and not headed) or (data is not None and PENALTY in subject.arrays):
        return None
    labels = {"head_labels": np.ones(subject.problem.n)} if headed else {}
    given = subject.replace(arrays={**labels, **subject.arrays})
    maps = dict.fromkeys(("head_labels", "head_weights", "start_head"), lambda x: np.asarray(0.0 - x))
    data = None if data is None else replace(data, Y=-data.Y, v=0.0 - data.v)
    return _with(given, data, maps, subject.problem.keys, subject.problem.scores)


def _turned(subject: Any, rng: Rng, map_of: Callable[[int, Rng], Linear], unit: float = 1.0) -> Any:
    """Apply an orthogonal map to tokens, keys or both, and ``unit`` times an orthogonal map to keys."""
    start, unscaled = subject.start, {"eta", *LENGTHS, *PROMPTS} - {*DIRECTIONS}
    held = {*subject.arrays} if isinstance(subject, Case) else {"eta"} if getattr(subject, "step", 0.0) else {*()}
    if unit != 1.0 and (held & unscaled or (start is not None and start.any())):
        return None
    if not isinstance(subject, Case):
        name = "features" if isinstance(subject, LabelledFeatures) else "embeddings"
        vectors = getattr(subject, name)
        change = map_of(vectors.shape[1], rng)
        if start is not None:
            start = change(start.reshape(-1, vectors.shape[1]))
            if getattr(subject, "samples", None) is not None:
                start = change(start.T.copy()).T
            start = np.ascontiguousarray(start).ravel()
        return subject.replace(**{name: change(vectors)}, start=start)
    data, problem = _data_of(subject), subject.problem
    shape = data.shape if (trained := isinstance(data, QueryDataset | SequenceDataset)) else ()
    d = problem.d if data is None else shape[1] if trained else len(data.key_query)
    kind = int(rng.integers(3)) if data is not None and unit == 1.0 else 0
    keys = map_of(d, rng) if kind != 1 else lambda x: x
    tokens = map_of(data.X.shape[2], rng) if kind != 0 else lambda x: x

    def weights(x: Any) -> Any:
        W = keys(x.reshape(*x.shape[:-1], *shape))
        W = np.swapaxes(tokens(np.swapaxes(W, -1, -2)), -1, -2)
        return np.ascontiguousarray(W).reshape(*x.shape[:-1], -1)

    if trained:
        data = replace(data, X=tokens(data.X), v=tokens(data.v), queries=keys(data.queries))
    elif data is not None:
        W = np.ascontiguousarray(keys(tokens(data.key_query).T).T)
        data = replace(data, X=tokens(data.X), v=tokens(data.v), W=W)
        if not np.array_equal(data.problem.keys, keys(problem.keys)):
            raise Inexact  # the keys X Wᵀ are rounded, and in the new coordinates they are rounded differently
    maps = dict.fromkeys((*PROMPTS, "p0"), weights if trained else keys) | {"start_head": tokens}
    start = None if start is None else maps["p0"](start)
    return _with(subject, data, maps, None if trained else keys(problem.keys), problem.scores, start=start)


def _keys_shifted(case: Any, rng: Rng) -> Any:
    data, problem = _data_of(case), case.problem
    if "eta" in case.arrays:  # a step size depends on the keys, not on differences only
        return None
    if data is None:
        by = rng.integers(-3, 4, (problem.n, 1, problem.d)) * problem.key_scale
        return _with(case, None, {}, _exact_sum(problem.keys, by), problem.scores) if by.any() else None
    # A shift in coordinates in which the head is zero changes no score.
    scale = 2.0 ** np.floor(np.log2(max(np.abs(data.X).max(), 1e-300)))
    by = np.where(data.v == 0, rng.integers(-3, 4, (len(data.X), 1, data.X.shape[2])) * scale, 0.0)
    shifted = _with(case, replace(data, X=_exact_sum(data.X, by)), {})
    # If the keys X Wᵀ are rounded, differences of keys may change.
    old, new = ((keys - keys[:, :1]) for keys in (problem.keys, shifted.problem.keys))
    return shifted if by.any() and np.array_equal(old, new) and problem.factors is None else None


def _in_units(subject: Any, rng: Rng, of: str) -> Any:
    """Multiply keys, tokens or scores by a power of two."""
    factor = float(2.0 ** (rng.choice((-1, 1)) * rng.integers(1, 21)))
    keys, tokens, scores = (factor if of == name else 1.0 for name in ("keys", "tokens", "scores"))
    logits = keys if getattr(subject, "samples", None) is None else keys**2
    start = None if subject.start is None else _scale(subject.start, 1 / logits)
    if of == "keys" and isinstance(subject, LabelledFeatures):
        return subject.replace(features=_scale(subject.features, keys), start=start)
    if of == "keys" and isinstance(subject, NextTokens):
        step = float(_scale(np.array(subject.step), 1 / logits**2))
        return subject.replace(embeddings=_scale(subject.embeddings, keys), start=start, step=step)
    data, problem = _data_of(subject), subject.problem
    linear = problem.loss.name == "correlation" and not {*HEAD_ARRAYS} & {*subject.arrays}
    if (of == "scores" and not linear) or (of == "tokens" and data is None):
        return None
    by = dict.fromkeys({*LENGTHS, *PROMPTS} - {*DIRECTIONS}, 1 / keys) | {"eta": 1 / keys**2 / scores}
    by |= dict.fromkeys(("head_radii", "start_head"), scores / tokens) | {PENALTY: scores / tokens**2}
    maps: dict[str, Linear] = {name: partial(_scale, factor=by_name) for name, by_name in by.items()}
    if data is None:
        return _with(subject, None, maps, _scale(problem.keys, keys), _scale(problem.scores, scores), start=start)
    parts = {"X": _scale(data.X, tokens), "v": _scale(data.v, scores / tokens)}
    if not isinstance(data, Dataset):
        parts["queries"] = _scale(data.queries, keys / tokens)
    elif data.W is not None or keys != tokens:
        parts["W"] = _scale(data.key_query, keys / tokens)
    return _with(subject, replace(data, **parts), maps, start=start)


def _written_and_read(subject: Any, rng: Rng) -> Any:
    """Write the data as decimals and read them again; arrays that are exact in float32 are read as float32."""
    if not (isinstance(subject, Case) or subject.kind):
        return None
    values = from_json(as_text(subject))
    kept = {"arrays", KIND} | {key for key, value in values.items() if isinstance(value, str | int | bool)}
    return subject_of({key: value if key in kept else _as_float32(value) for key, value in values.items()})


def _as_float32(value: Any) -> Any:
    array = np.asarray(numbers(value))
    if not array.ndim or array.dtype != np.float64:
        return value
    with np.errstate(over="ignore"):
        short = array.astype(np.float32)
    return short if np.array_equal(short, array) else value


RELATIONS: dict[str, Callable[[Any, Rng], Any]] = {
    "inputs-permuted": partial(_of_inputs, order_of=_shuffled),
    "tokens-permuted": _tokens_permuted,
    "classes-permuted": _classes_permuted,
    "labels-and-head-negated": _labels_negated,
    "axes-exchanged": partial(_turned, map_of=_signed_permutation),
    "reflected": partial(_turned, map_of=_reflection),
    "rotated": partial(_turned, map_of=_rotation, unit=5.0),
    "coordinate-of-zero": partial(_turned, map_of=lambda d, rng: lambda x: np.append(x, 0 * abs(x[..., :1]), -1)),
    "keys-shifted": _keys_shifted,
    "unit-of-keys": partial(_in_units, of="keys"),
    "unit-of-tokens": partial(_in_units, of="tokens"),
    "unit-of-scores": partial(_in_units, of="scores"),
    "inputs-twice": partial(_of_inputs, order_of=lambda n, r: r.choice([np.arange(2 * n) % n, np.arange(2 * n) // 2])),
    "counts-doubled": lambda s, rng: None if getattr(s, "counts", None) is None else s.replace(counts=2 * s.counts),
    "written-and-read": _written_and_read,
}

"""Cases in and out: the arrays of a user's file, a named dataset, or a failing case that was written down.

A file holds named arrays: X (n,T,d), Y (n,), v (d,), optionally W (d',d); or keys (n,T,d) and scores (n,T).
Optional in both: loss (text), alpha (n,), p0 or start (d,), seed. With queries (n,e) beside X, Y and v it is W that is
trained: then its start is W0 (d,e), or K0 (d,m) and Q0 (e,m) with W0 = K0 Q0ᵀ. Queries may be several per input,
(n,L,e) with Y (n,L); they see what a mask (n,L,T) lets them, or with causal = true the tokens up to their own. Further
arrays that a statement knows (``u``, ``q``, ``q1``, ``q2``, …) are given by their name, in JSON also within an object
``arrays``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int64

from generators.attention_call import AttentionCall
from generators.call_text import call_of, text_of
from generators.case import Case
from generators.corpus import read_corpus
from generators.mixing_assumptions import PENALTY
from generators.next_tokens import NextTokens
from generators.optimal_sets import HEAD_ARRAYS
from generators.query_data import FACTORS, QUERIES, check_query_names, query_dataset_of, start_of
from generators.subject import KIND, Subject, empty_array, kind_named, written_array
from reference_attention.errors import InvalidInput, suggest
from reference_attention.files import from_json, numbers, read_named_values, to_json
from reference_attention.loss import Loss
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem, checked_array, refuse_truth_values
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset

TOKENS = ("X", "Y", "v", "W")
PAIR = ("keys", "scores")
OPTIONAL = ("loss", "alpha", "p0", "start", "seed")
DIRECTIONS = ("q", "q1", "q2")
"""Of shape (d,) when they stand beside the others; like every direction they keep their values in other units."""
FURTHER = ("u", *DIRECTIONS, "eta", "cone_mu", "cone_radius", "head_radii", "prompt_radii", PENALTY, *HEAD_ARRAYS)
"""Arrays of single statements that may stand beside the others without an ``arrays`` object around them."""
RECORD = ("arrays", "case_of", "claim", "name")
"""Written by the command with a failing case."""


Data = Dataset | QueryDataset | SequenceDataset


@dataclass(frozen=True)
class Given:
    """Data to check statements on.

    Attributes:
        case: the data; a call of an attention kernel that was written down.
        failed: the id of the statement that failed on it; the case is then run as it is.
    """

    case: Any
    failed: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # Cases hold read-only mappings, which do not pickle; their JSON is exact.
        return _restore_given, (as_text(self.case, case_of="sent"), self.failed)


def _restore_given(text: str, failed: str) -> Given:
    return Given(subject_of(from_json(text)), failed)


def load(source: str, seed: int, *, calls: bool = False) -> Given:
    """A .npz or .json file, a text whose characters are the tokens of a corpus (.txt), or a named dataset.

    Args:
        source: path or name.
        seed: for the points at which a "for every p" conclusion is tried, unless the file holds one.
        calls: whether it may be a call of an attention kernel that was written down.

    Raises:
        InvalidInput: with one sentence that says what to change.
    """
    path = Path(source)
    if path.suffix in (".npz", ".json"):
        return parse_given(read_named_values(path, partial(check_names, path.name)), seed, path.name, calls=calls)
    if path.suffix == ".txt":
        return Given(NextTokens.of_corpus(read_corpus(path), seed=seed, name=path.name))
    from generators.datasets import NAMES, all_data, dataset_named

    if source not in NAMES and source not in all_data():
        raise InvalidInput(
            f"--data: {source!r} is neither a file that ends in .npz, .json or .txt nor a named dataset."
            f"{suggest(source, all_data())} `theorems list --data` shows the datasets."
        )
    return Given(dataset_named(source).replace(seed=seed))


def parse_given(held: Mapping[str, Any], seed: int, name: str, *, calls: bool = False) -> Given:
    """Named arrays, or what was written down of a failing case.

    Raises:
        InvalidInput: as :func:`case_of`; a call of an attention kernel where there is nothing to call.
    """
    if "query" in held and not calls:
        raise InvalidInput(f"{name}: holds a call of an attention kernel; give it to theorems verify --attention.")
    return Given(subject_of(held, seed, name), _text("case_of", held.get("case_of", "")))


def subject_of(held: Mapping[str, Any], seed: int = 0, name: str = "data") -> Subject:
    """The case, the call of an attention kernel, or the data of another paper, that named values make.

    Raises:
        InvalidInput: as :func:`case_of`.
    """
    if KIND in held:
        return kind_named(held[KIND]).of_values(held, seed, name)
    return call_of(held, name) if "query" in held else case_of(held, seed, name)


def case_of(held: Mapping[str, Any], seed: int = 0, name: str = "data") -> Case:
    """The case that named values make.

    Raises:
        InvalidInput: unknown names, missing arrays, or arrays that do not fit together.
    """
    check_names(name, held)
    values = {key: numbers(value) for key, value in held.items()}
    loss = loss_named(_text("loss", values.get("loss", "logistic")))
    queried = query_dataset_of(values, loss, name)
    dataset = None if queried is not None else _dataset(values, loss)
    problem = _problem(values, loss, queried or dataset, name)
    start = start_of(values, problem, queried, name)
    alpha = _parse_tokens(values["alpha"], problem) if "alpha" in values else None
    return Case(
        problem=problem,
        dataset=dataset,
        queried=queried if isinstance(queried, QueryDataset) else None,
        sequence=queried if isinstance(queried, SequenceDataset) else None,
        alpha=alpha,
        start=start,
        arrays=MappingProxyType(_further(held, name, problem.d)),
        seed=_integer("seed", values["seed"]) if "seed" in values else seed,
        name=_text("name", values.get("name", name)),
    )


def check_names(name: str, names: Collection[str]) -> None:
    """That every name is known and those that are needed are there.

    Raises:
        InvalidInput: with the nearest name that is known, or the one that is missing.
    """
    if "query" in names or KIND in names:
        return  # a call of an attention kernel or data of another paper, which look at their own
    known = (*TOKENS, *QUERIES, *PAIR, *OPTIONAL, *FURTHER, *RECORD)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidInput(
            f"{name}: unknown name {unknown[0]!r}.{suggest(unknown[0], known)} Give X, Y, v (and W), or"
            " keys and scores; docs/verify.md names what else there may be."
        )
    for given, together, said in ((TOKENS, TOKENS[:3], "X, Y and v"), (PAIR, PAIR, "keys and scores")):
        missing = [key for key in together if key not in names]
        if missing and {*given} & {*names}:
            raise InvalidInput(f"{name}: {missing[0]} is missing; {said} are needed together.")
    check_query_names(name, names)
    if not {"X", "keys"} & {*names}:
        raise InvalidInput(f"{name}: holds no data; give X, Y, v (and W), or keys and scores.")


def _dataset(values: Mapping[str, Any], loss: Loss) -> Dataset | None:
    if "X" not in values:
        return None
    return Dataset(values["X"], values["Y"], values["v"], values.get("W"), loss)


def _problem(values: Mapping[str, Any], loss: Loss, dataset: Data | None, name: str) -> Problem:
    if "keys" not in values:
        assert dataset is not None
        return dataset.problem
    keys = checked_array("keys", values["keys"], ("n", "T", "d"))
    problem = Problem(keys, checked_array("scores", values["scores"], keys.shape[:2]), loss)
    if dataset is None:
        return problem
    made = dataset.problem
    if "case_of" not in values and not (
        np.array_equal(problem.keys, made.keys) and np.array_equal(problem.scores, made.scores)
    ):
        raise InvalidInput(f"{name}: keys and scores are not those that the tokens make; give one of the two.")
    return problem


def _parse_tokens(value: Any, problem: Problem) -> Int64[np.ndarray, "n"]:
    alpha = checked_array("alpha", value, (problem.n,))
    if not (np.equal(np.mod(alpha, 1), 0) & (alpha >= 0) & (alpha < problem.T)).all():
        bad = int(np.argmax((np.mod(alpha, 1) != 0) | (alpha < 0) | (alpha >= problem.T)))
        raise InvalidInput(f"alpha: entry {bad} is {alpha[bad]:g}; give a token number from 0 to {problem.T - 1}.")
    return alpha.astype(np.int64)


def _further(held: Mapping[str, Any], name: str, d: int) -> dict[str, Any]:
    """Further arrays, float64; of any shape but for directions that stand beside the others."""
    within = held.get("arrays", {})
    if not isinstance(within, Mapping):
        raise InvalidInput(f"{name}: arrays must be an object of named arrays.")
    found: dict[str, Any] = {key: held[key] for key in (*FURTHER, *FACTORS) if key in held}
    for key in DIRECTIONS:
        if key in held:
            found[key] = checked_array(key, numbers(held[key]), (d,))
    found.update(within)
    arrays = {}
    for key, value in found.items():
        refuse_truth_values(key, value)
        try:
            raw = empty_array(value) if isinstance(value, Mapping) else np.asarray(numbers(value))
        except (ValueError, TypeError, OverflowError):
            raise InvalidInput(f"{key}: is not an array; give nested lists of numbers of equal length.") from None
        if raw.dtype.kind not in "fiu":
            raise InvalidInput(f"{key}: dtype {raw.dtype} is not real numeric; give numbers.")
        array = raw.astype(np.float64)
        array.setflags(write=False)
        arrays[key] = array
    return arrays


def _text(key: str, value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, str):
        raise InvalidInput(f"{key}: must be text.")
    return value


def _integer(key: str, value: Any) -> int:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f"{key}: must be a whole number that is not negative.")
    return value


def as_text(case: Subject, **record: str) -> str:
    """The case as JSON that :func:`load` reads back to the same floats.

    Args:
        record: ``case_of`` (the statement) and ``claim``, for a failing case.
    """
    if isinstance(case, AttentionCall):
        return text_of(case, **record)
    if not isinstance(case, Case):
        said = {key: value for key, value in record.items() if value}
        return _lines_of(said | {KIND: case.kind, **case.named_values()})
    queried = case.queried or case.sequence
    problem, dataset = case.problem, queried or case.dataset
    held: dict[str, Any] = {key: value for key, value in record.items() if value}
    held["loss"] = problem.loss.name
    if dataset is not None:
        held |= {"X": dataset.X, "Y": dataset.Y, "v": dataset.v}
        if isinstance(dataset, Dataset):
            held |= {} if dataset.W is None else {"W": dataset.W}
        else:
            held["queries"] = dataset.queries
        if isinstance(dataset, SequenceDataset) and not dataset.mask.all():
            held["mask"] = dataset.mask.astype(np.int64)
    made = None if dataset is None else dataset.problem
    if made is None or not (np.array_equal(made.keys, problem.keys) and np.array_equal(made.scores, problem.scores)):
        held |= {"keys": problem.keys, "scores": problem.scores}
    if case.alpha is not None:
        held["alpha"] = case.alpha
    if case.start is not None:
        held |= {"start": case.start} if queried is None else {"W0": case.start.reshape(queried.shape)}
    if case.arrays:
        held["arrays"] = {name: written_array(np.asarray(x, dtype=np.float64)) for name, x in case.arrays.items()}
    held |= {"seed": case.seed, "name": case.name}
    return _lines_of(held)


def attention_case(given: Given) -> Case:
    """The data, where only keys and scores will do.

    Raises:
        InvalidInput: they are something else.
    """
    if not isinstance(given.case, Case):
        raise InvalidInput(f"{given.case.name}: holds {given.case.noun}; give keys and scores, or tokens.")
    return given.case


def _lines_of(held: Mapping[str, Any]) -> str:
    # One line per name: short enough to read, and stable to compare.
    return "{\n" + ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in held.items()) + "\n}\n"

"""Reading and writing of cases: a user's file of arrays, a named dataset, or a failing case that was saved.

A file holds named arrays:

- X (n,T,d), Y (n,), v (d,), optionally W (d',d); or keys (n,T,d) and scores (n,T);
- optionally loss (text), alpha (n,), p0 or start (d,), seed;
- with X, Y and v optionally queries (n,e); then W is trained, with the start W0 (d,e), or K0 (d,m) and Q0 (e,m) with
  W0 = K0 Q0ᵀ. There may be several queries per input, (n,L,e) with Y (n,L); query k sees the tokens where a mask
  (n,L,T) is true, or with causal = true the tokens up to token k;
- optionally a mask (n,T) that is true for the tokens that count (:mod:`generators.token_mask`);
- optionally trained weights: p (d,), or with queries W_trained (d,e), or K_trained (d,m) and Q_trained (e,m); with
  checkpoints, weights have one more axis, the first, and optionally ``steps`` has the number of training steps before
  each checkpoint;
- other arrays of statements (``u``, ``q``, ``q1``, ``q2``, …), in JSON also within an object ``arrays``.
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

from generators.case import Case
from generators.corpus import read_corpus, split_window
from generators.layer_weights import STEPS, TRAINED, checkpoints_of
from generators.mixing_assumptions import PENALTY
from generators.next_tokens import NextTokens
from generators.optimal_sets import HEAD_ARRAYS
from generators.query_data import FACTORS, QUERIES, check_query_names, query_dataset_of, start_of
from generators.subject import KIND, Subject, empty_array, format_of, kind_named, written_array
from generators.token_mask import (
    drop_hidden_tokens,
    is_ragged,
    positions_of,
    ragged_dataset,
    renumber,
    token_mask_of,
)
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
"""The names of directions: they have shape (d,) outside an object ``arrays``, and do not change with units of keys."""
FURTHER = ("u", *DIRECTIONS, "eta", "cone_mu", "cone_radius", "head_radii", "prompt_radii", PENALTY, *HEAD_ARRAYS)
"""The names of arrays of single statements that may be given outside an object ``arrays``."""
RECORD = ("arrays", "case_of", "claim", "name")
"""The further names that ``theorems verify`` writes to the file of a failing case."""


Data = Dataset | QueryDataset | SequenceDataset


@dataclass(frozen=True)
class Given:
    """Data to check statements on.

    Attributes:
        case: the data of one check, or a saved call of an attention kernel.
        failed: the id of the statement that failed on the case, if it is a saved failing case; such a case is checked
            unchanged.
    """

    case: Any
    failed: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the data as their JSON, with the id of the failed statement."""
        # Cases hold read-only mappings, which cannot be pickled; the JSON of a case is exact.
        return _restore_given, (as_text(self.case, case_of="sent"), self.failed)


def _restore_given(text: str, failed: str) -> Given:
    return Given(subject_of(from_json(text)), failed)


def load(source: str, seed: int, *, calls: bool = False) -> Given:
    """Read a .npz or .json file, a text whose characters are the tokens of a corpus, or a named dataset.

    The path of a text ends in .txt; with :window=N after the path, a context has N tokens.

    Args:
        source: the path of a file, or the name of a dataset.
        seed: the seed of the points at which a conclusion about every p is checked, if the file has no seed.
        calls: whether the file may be a saved call of an attention kernel.

    Raises:
        InvalidInput: the data cannot be read; the message says what to change.
    """
    source, window = split_window(source)
    path = Path(source)
    if path.suffix in (".npz", ".json"):
        return parse_given(read_named_values(path, partial(check_names, path.name)), seed, path.name, calls=calls)
    if path.suffix == ".txt":
        return Given(NextTokens.of_corpus(read_corpus(path), window, seed=seed, name=path.name))
    from generators.datasets import NAMES, all_data, dataset_named

    if source not in NAMES and source not in all_data():
        raise InvalidInput(
            f"--data: {source!r} is neither a file that ends in .npz, .json or .txt nor a named dataset."
            f"{suggest(source, all_data())} `theorems list data` shows the datasets."
        )
    return Given(dataset_named(source).replace(seed=seed))


def parse_given(contents: Mapping[str, Any], seed: int, name: str, *, calls: bool = False) -> Given:
    """Return the data of a file of named arrays, or of the file of a failing case.

    Raises:
        InvalidInput: the contents are refused by :func:`case_of`, or are a call of a kernel although ``calls`` is
            False.
    """
    other_format = None if calls or KIND in contents else format_of(contents)
    if other_format is not None and other_format.command:
        raise InvalidInput(f"{name}: holds {other_format.data.noun}; give it to {other_format.command}.")
    return Given(subject_of(contents, seed, name), _text("case_of", contents.get("case_of", "")))


def subject_of(contents: Mapping[str, Any], seed: int = 0, name: str = "data") -> Subject:
    """Return the case, the call of an attention kernel, or the data of another paper that the named values define.

    Raises:
        InvalidInput: the values do not define such data; see :func:`case_of`.
    """
    if KIND in contents:
        return kind_named(contents[KIND]).of_values(contents, seed, name)
    other_format = format_of(contents)
    return case_of(contents, seed, name) if other_format is None else other_format.read(contents, name)


def case_of(contents: Mapping[str, Any], seed: int = 0, name: str = "data") -> Case:
    """Return the case that the named values define.

    Raises:
        InvalidInput: unknown names, missing arrays, or arrays that do not fit together.
    """
    check_names(name, contents)
    values = {key: numbers(value) for key, value in contents.items()}
    mask = token_mask_of(values)
    ragged = is_ragged(mask)
    if mask is not None and not ragged:
        values = drop_hidden_tokens(values, mask)
    loss = loss_named(_text("loss", values.get("loss", "logistic")))
    queried: QueryDataset | SequenceDataset | None
    if mask is not None and ragged:
        queried = ragged_dataset(values, mask, loss, name)
    else:
        queried = query_dataset_of(values, loss, name)
    dataset = None if queried is not None else _dataset(values, loss)
    problem = queried.problem if queried is not None and ragged else _problem(values, loss, queried or dataset, name)
    start = start_of(values, problem, queried, name)
    alpha = None
    if "alpha" in values:
        alpha = _parse_tokens(values["alpha"], problem.n, problem.T if mask is None else mask.shape[1])
        alpha = alpha if mask is None else renumber(alpha, mask)
    case = Case(
        problem=problem,
        dataset=dataset,
        queried=queried if isinstance(queried, QueryDataset) else None,
        sequence=queried if isinstance(queried, SequenceDataset) else None,
        alpha=alpha,
        start=start,
        positions=None if mask is None or mask.all() or ragged else positions_of(mask),
        arrays=MappingProxyType(_further(contents, name, problem.d)),
        seed=_integer("seed", values["seed"]) if "seed" in values else seed,
        name=_text("name", values.get("name", name)),
    )
    weights = checkpoints_of(case.replace(name=name), values)
    return case if weights is None else case.replace(arrays=MappingProxyType({**case.arrays, **weights.arrays}))


def check_names(name: str, names: Collection[str]) -> None:
    """Check that every name is known and no required name is missing.

    Raises:
        InvalidInput: an unknown name (the message suggests the nearest known one), or a missing name.
    """
    if KIND in names or format_of({*names}) is not None:
        return  # other classes of data check their names themselves
    allowed = (*TOKENS, *QUERIES, *PAIR, *OPTIONAL, *TRAINED, STEPS, *FURTHER, *RECORD)
    unknown = sorted(set(names) - set(allowed))
    if unknown:
        raise InvalidInput(
            f"{name}: unknown name {unknown[0]!r}.{suggest(unknown[0], allowed)} Give X, Y, v (and W), or"
            " keys and scores; docs/verify.md lists all other names."
        )
    for group, together, names_of_group in ((TOKENS, TOKENS[:3], "X, Y and v"), (PAIR, PAIR, "keys and scores")):
        missing = [key for key in together if key not in names]
        if missing and {*group} & {*names}:
            raise InvalidInput(f"{name}: {missing[0]} is missing; {names_of_group} are needed together.")
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
    from_tokens = dataset.problem
    if "case_of" not in values and not (
        np.array_equal(problem.keys, from_tokens.keys) and np.array_equal(problem.scores, from_tokens.scores)
    ):
        raise InvalidInput(f"{name}: keys and scores are not those of X, Y and v; give keys and scores, or X, Y and v.")
    return problem


def _parse_tokens(value: Any, n: int, T: int) -> Int64[np.ndarray, "n"]:
    alpha = checked_array("alpha", value, (n,))
    if not (np.equal(np.mod(alpha, 1), 0) & (alpha >= 0) & (alpha < T)).all():
        bad = int(np.argmax((np.mod(alpha, 1) != 0) | (alpha < 0) | (alpha >= T)))
        raise InvalidInput(f"alpha: entry {bad} is {alpha[bad]:g}; give a token number from 0 to {T - 1}.")
    return alpha.astype(np.int64)


def _further(contents: Mapping[str, Any], name: str, d: int) -> dict[str, Any]:
    """Return the arrays of single statements as float64; directions outside ``arrays`` must have shape (d,)."""
    within = contents.get("arrays", {})
    if not isinstance(within, Mapping):
        raise InvalidInput(f"{name}: 'arrays' is not an object; give an object that maps names to arrays.")
    further: dict[str, Any] = {key: contents[key] for key in (*FURTHER, *FACTORS) if key in contents}
    for key in DIRECTIONS:
        if key in contents:
            further[key] = checked_array(key, numbers(contents[key]), (d,))
    further.update(within)
    arrays = {}
    for key, value in further.items():
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
        raise InvalidInput(f"{key}: must be a whole number, at least 0.")
    return value


def as_text(case: Subject, **record: str) -> str:
    """Return the case as JSON that :func:`load` reads back to the same floats.

    Args:
        case: the case.
        record: further entries, for a failing case ``case_of``, the id of the statement, and ``claim``, the claim's
            name.
    """
    if not isinstance(case, Case):
        other_format = format_of(case)
        if other_format is not None:
            return other_format.write(case, **record)
        record_values = {key: value for key, value in record.items() if value}
        return _lines_of(record_values | {KIND: case.kind, **case.named_values()})
    queried = case.queried or case.sequence
    problem, dataset = case.problem, queried or case.dataset
    contents: dict[str, Any] = {key: value for key, value in record.items() if value}
    contents["loss"] = problem.loss.name
    known = case.sequence is not None and case.sequence.values is not None
    if case.sequence is not None and known:
        contents |= {"keys": case.sequence.X, "scores": case.sequence.values, "mask": case.sequence.mask[:, 0] + 0}
    elif dataset is not None:
        contents |= {"X": dataset.X, "Y": dataset.Y, "v": dataset.v}
        if isinstance(dataset, Dataset):
            contents |= {} if dataset.W is None else {"W": dataset.W}
        else:
            contents["queries"] = dataset.queries
        if isinstance(dataset, SequenceDataset) and not dataset.mask.all():
            contents["mask"] = dataset.mask.astype(np.int64)
    from_tokens = None if dataset is None else dataset.problem
    if not known and (
        from_tokens is None
        or not (np.array_equal(from_tokens.keys, problem.keys) and np.array_equal(from_tokens.scores, problem.scores))
    ):
        contents |= {"keys": problem.keys, "scores": problem.scores}
    if case.alpha is not None:
        contents["alpha"] = case.alpha
    if case.start is not None:
        contents |= {"start": case.start} if queried is None or known else {"W0": case.start.reshape(queried.shape)}
    if case.arrays:
        contents["arrays"] = {name: written_array(np.asarray(x, dtype=np.float64)) for name, x in case.arrays.items()}
    contents |= {"seed": case.seed, "name": case.name}
    return _lines_of(contents)


def attention_case(parsed: Given) -> Case:
    """Return the data if they are a case of attention whose inputs have equally many tokens.

    Raises:
        InvalidInput: the data are of another kind, or inputs have different numbers of tokens.
    """
    if not isinstance(parsed.case, Case):
        raise InvalidInput(f"{parsed.case.name}: holds {parsed.case.noun}; give keys and scores, or tokens.")
    refuse_several_lengths(parsed.case)
    return parsed.case


def refuse_several_lengths(case: Case) -> None:
    """Refuse a case whose inputs have different numbers of tokens, as ``case.problem`` lacks inputs with fewer tokens.

    Raises:
        InvalidInput: inputs have different numbers of tokens.
    """
    if case.unfit_for(()):
        raise InvalidInput(
            f"{case.name}: inputs keep different numbers of tokens; only theorems explain and theorems verify accept"
            " such data. Put the inputs that keep the same number of tokens in a file of their own."
        )


def _lines_of(contents: Mapping[str, Any]) -> str:
    # One line per name is readable, and keeps differences between versions of a file small.
    return "{\n" + ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in contents.items()) + "\n}\n"

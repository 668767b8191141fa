"""Conversion of the arguments of the library's functions: data in any form, ids, an attention kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from generators.case import Case
from generators.corpus import split_window
from generators.datasets import NAMES, all_data
from generators.subject import Subject, format_of
from generators.user_data import Given, load, parse_given
from reference_attention.errors import InvalidInput
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.under_test import UnderTest
from theorems.run.kernel_suite import kernel_suite
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements
from theorems.run.registry.user_file import is_in_a_file

Data = Problem | Dataset | QueryDataset | SequenceDataset | Subject | Mapping[str, Any] | str | PathLike[str]
"""Data to check: an object, a mapping with the arrays of a .npz file, or the name of a data file or of a dataset."""
Attention = Callable[..., Any] | str | Implementation
"""Attention kernel, its name as MODULE:CALLABLE, or an :class:`Implementation` of all functions that statements
call."""


def data_and_ids(first: Data | None, ids: tuple[str, ...], data: Data | None) -> tuple[Data | None, tuple[str, ...]]:
    """Return the data and the ids, where the first argument of a function may be either.

    A string is data if it names a dataset or ends in .npz, .json, .txt or ``.txt:window=N``, where N is the length of a
    window of the text.

    Raises:
        InvalidInput: data are given twice, or a string is neither data nor an id.
    """
    if first is None:
        return data, ids
    if isinstance(first, str) and not names_data(first):
        _check_id(first)
        return data, (first, *ids)
    if data is not None:
        raise InvalidInput("data: given twice, as the first argument and as data=…; give one of them.")
    return first, ids


def names_data(text: str) -> bool:
    """Return whether the text names a dataset or a file of data."""
    return text in NAMES or text in all_data() or Path(split_window(text)[0]).suffix in (".npz", ".json", ".txt")


def _check_id(text: str) -> None:
    if is_in_a_file(text):
        return  # the session will read the user's file and check the id
    try:
        statement_named(text)
    except InvalidInput:
        raise InvalidInput(
            f"{text!r} is neither a statement ({', '.join(statements())}, PATH.py:NAME) nor data"
            f" ({', '.join(all_data())}, a file that ends in .npz, .json or .txt)."
        ) from None


def as_given(data: Any, seed: int, *, calls: bool = False) -> Given:
    """Return the data as a case, the form in which statements are checked on them.

    Args:
        data: the data in any form.
        seed: the seed of the case; if the data are a Case, its own seed is kept.
        calls: whether the data may be a stored call of an attention kernel.

    Raises:
        InvalidInput: the data cannot be used.
    """
    if isinstance(data, Subject) and (calls or format_of(data) is None):
        return Given(data)
    if isinstance(data, Problem):
        return Given(Case(data, seed=seed, name="data"))
    if isinstance(data, Dataset):
        return Given(Case(data.problem, data, seed=seed, name="data"))
    if isinstance(data, QueryDataset):
        return Given(Case(data.problem, queried=data, seed=seed, name="data"))
    if isinstance(data, SequenceDataset):
        return Given(Case(data.problem, sequence=data, seed=seed, name="data"))
    if isinstance(data, Mapping):
        return parse_given(data, seed, "data", calls=calls)
    if isinstance(data, str | PathLike):
        return load(fspath(data), seed, calls=calls)
    raise InvalidInput(
        f"data: {type(data).__name__} is none of Problem, Dataset, QueryDataset, SequenceDataset, Case, named arrays,"
        " or the name of a file or dataset."
    )


def name_of(data: Any) -> str | None:
    """Return the name of the data for a report; "data" for arrays without a name, and None without data."""
    if isinstance(data, str | PathLike):
        return str(fspath(data))
    return data.name if isinstance(data, Subject) else None if data is None else "data"


def implementation_of(
    attention: Attention | None,
    dtype: str | None,
    interface: str | None = None,
    device: str | None = None,
) -> UnderTest:
    """Return the implementation under test: the reference, or an attention kernel given as an object or by name.

    Raises:
        InvalidInput: the object is not a kernel, or ``dtype``, ``interface`` or ``device`` is given without a kernel.
    """
    if attention is None or isinstance(attention, Implementation):
        for name, value in (("dtype", dtype), ("interface", interface), ("device", device)):
            if value is not None:
                raise InvalidInput(f"{name}: is an option for attention kernels; give the kernel with attention=….")
        return attention or REFERENCE
    return kernel_suite().under_test_of(attention, dtype, interface, device)

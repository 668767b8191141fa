"""Data for benchopt by name, with the names that ``theorems bench --data`` takes."""

from __future__ import annotations

from typing import Any

from benchopt import BaseDataset

from generators.user_data import attention_case, load
from theorems.benchmark.bench_units import shape_of, start_of


class Dataset(BaseDataset):
    """Named data with the start that ``theorems bench`` uses; if the data have queries, W is trained in place of p."""

    name = "named"
    parameters = {"data": ["figure-1a", "figure-1b", "figure-1c", "tsvm-paths-3"]}  # noqa: RUF012

    def get_data(self) -> dict[str, Any]:
        """Return the problem (keys, scores, loss), the start, and the shape of the trained parameter."""
        case = attention_case(load(self.data, 0))
        keys = None if case.queried is None else case.queried.keys
        return {"problem": case.problem, "start": start_of(self.data, case), "shape": shape_of(case), "keys": keys}

"""An engine by what the user calls it: ``local`` or ``dask://HOST:PORT``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.run.engines.coordinator import Coordinator
from theorems.run.engines.engine import Engine

LOCAL = "local"


def engine_named(name: str) -> Engine | None:
    """The engine; None for processes of this machine.

    Raises:
        InvalidInput: no such engine, its library is not installed, or it cannot be reached.
    """
    if name == LOCAL:
        return None
    if name.startswith("dask://"):
        from theorems.run.engines.on_dask import OnDask

        return OnDask(name.removeprefix("dask://"))
    raise InvalidInput(f"--engine: {name!r} is not one of local, dask://HOST:PORT.")


@contextmanager
def coordinator(name: str, run: Mapping[str, Any], journal: Path | None) -> Iterator[Coordinator | None]:
    """Who does the work of a run with that identity; None for processes of this machine.

    Raises:
        InvalidInput: as :func:`engine_named`.
    """
    engine = engine_named(name)
    if engine is None:
        yield None
        return
    try:
        yield Coordinator(engine, run, journal)
    finally:
        engine.close()

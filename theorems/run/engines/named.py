"""An engine by what the user calls it: ``local``, ``dask://HOST:PORT``, ``slurm``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.run.engines.coordinator import Coordinator
from theorems.run.engines.engine import Engine

LOCAL = "local"


def engine_named(name: str, journal: Path | None) -> Engine | None:
    """The engine; None for processes of this machine.

    Raises:
        InvalidInput: no such engine, its library is not installed, or it cannot be reached.
    """
    if name == LOCAL:
        return None
    if name.startswith("dask://"):
        from theorems.run.engines.on_dask import OnDask

        return OnDask(name.removeprefix("dask://"))
    if name in ("slurm", "slurm:local"):
        from theorems.run.engines.on_slurm import OnSlurm

        return OnSlurm(journal, "local" if name.endswith("local") else "slurm")
    raise InvalidInput(f"--engine: {name!r} is not one of local, dask://HOST:PORT, slurm.")


@contextmanager
def coordinator(name: str, run: Callable[[], Mapping[str, Any]], journal: Path | None) -> Iterator[Coordinator | None]:
    """Who does the work of a run with that identity; None for processes of this machine.

    Raises:
        InvalidInput: as :func:`engine_named`.
    """
    engine = engine_named(name, journal)
    if engine is None:
        yield None
        return
    try:
        yield Coordinator(engine, run(), journal)
    finally:
        engine.close()

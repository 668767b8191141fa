"""Slurm, through submitit: one array of jobs, each of which does its share of the units one after another."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.run.engines.engine import Answer
from theorems.run.engines.task import Said, Task, work
from theorems.run.engines.union import folder_of

ARRAY = 1000
"""Jobs of an array: what Slurm allows unless it is told otherwise (MaxArraySize = 1001)."""
MINUTES = 24 * 60
"""Of a job, unless SBATCH_TIMELIMIT says something else."""


OFTEN = 0.5
"""Seconds between two looks at the files of all jobs."""


class OnSlurm:
    """An engine of Slurm jobs; see :class:`theorems.run.engines.engine.Engine`.

    Slurm's own variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, SBATCH_MEM_PER_NODE, …) say the rest.
    """

    window = ARRAY

    def __init__(self, journal: Path | None, cluster: str = "slurm") -> None:
        """Nothing is submitted yet.

        Args:
            journal: of the run; the jobs write beside it.
            cluster: "slurm", or "local" for processes on this machine.

        Raises:
            InvalidInput: no submitit, no Slurm, no journal.
        """
        try:
            import submitit
        except ImportError:
            raise InvalidInput('--engine slurm: needs submitit: pip install "max-margin-theorems[slurm]"') from None
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise InvalidInput("--engine slurm: there is no sbatch here; run it on a machine that submits Slurm jobs.")
        if journal is None:
            raise InvalidInput("--engine slurm: needs --resume FILE on a file system that all nodes see.")
        folder = folder_of(journal.absolute()) / "jobs"
        self._executor: Any = submitit.AutoExecutor(folder=folder, cluster=cluster)
        self._executor.update_parameters(name="theorems", timeout_min=MINUTES, slurm_array_parallelism=ARRAY)
        self._jobs: list[tuple[Any, Answer]] = []
        self._looked = 0.0

    def per_task(self, waiting: int) -> int:
        """As many as make an array of them all."""
        return max(1, -(-waiting // ARRAY))

    def submit(self, tasks: Sequence[Task]) -> list[Answer]:
        """As one array."""
        if not tasks:
            return []
        jobs = self._executor.map_array(work, tasks)
        answers: list[Answer] = [Future[list[Said]]() for _ in jobs]
        self._jobs += zip(jobs, answers, strict=True)
        return answers

    def look(self) -> str:
        """Answer for the jobs that have ended."""
        if time.monotonic() - self._looked < OFTEN:
            return ""
        self._looked = time.monotonic()
        left = []
        for job, answer in self._jobs:
            if answer.cancelled():
                job.cancel(check=False)
            elif job.done():
                _answer(job, answer)
            else:
                left.append((job, answer))
        self._jobs = left
        return ""

    def back(self) -> str:
        """A job that failed is submitted again."""
        return ""

    def close(self) -> None:
        """Cancel what is not done."""
        for job, _ in self._jobs:
            job.cancel(check=False)
        self._jobs = []


def _answer(job: Any, answer: Answer) -> None:
    try:
        answer.set_result(job.result())
    except Exception as error:
        answer.set_exception(RuntimeError(f"job {job.job_id}: {(str(error).splitlines() or [''])[0]}"))

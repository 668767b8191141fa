"""Hands out units to an engine, and hears of their results; a coordinator that dies loses none that is in a journal."""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from max_margin_theorems import stopping
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems.run.encoding import decoded, result_kind, so_far_kind
from theorems.run.engines.address import address
from theorems.run.engines.engine import Answer, Engine
from theorems.run.engines.sameness import needed
from theorems.run.engines.task import Said, Sent, Task
from theorems.run.engines.union import folder_of, union
from theorems.run.pool import LOOK, PATIENCE, TRIES, Tell
from theorems.run.work import Enough

OVER = "out of time"
"""Why there is no more where ``until`` said so."""


class Coordinator:
    """Workers for :func:`theorems.run.schedule.run`, wherever the engine has them.

    Attributes:
        until: asked often; whether to stop although there is more to do.
    """

    def __init__(self, engine: Engine, run: Mapping[str, Any], journal: Path | None = None) -> None:
        """Begin.

        Args:
            engine: what does the work.
            run: the identity of the run.
            journal: that of the run; beside it is a folder in which each worker has its own, if the worker sees it.
        """
        self.until: Callable[[], bool] = lambda: False
        self._engine = engine
        self._run = run
        self._surroundings = to_json(needed(run))
        self._folder = None if journal is None else folder_of(journal.absolute())
        self._known: dict[str, Any] = {}
        self._addresses: dict[int, str] = {}
        self._tries: Counter[int] = Counter()

    def work(
        self,
        order: Sequence[int],
        unit: Callable[[int], Any],
        tell: Tell,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE,
    ) -> Iterator[None]:
        """As :meth:`theorems.run.pool.Pool.work`.

        Raises:
            KeyboardInterrupt: a signal came.
            Enough: ``until`` says so, or the engine is gone.
            InvalidInput: a worker has other sources or libraries.
        """
        waiting, out = deque(order), dict[Answer, list[int]]()
        self._tries.clear()
        self._addresses.clear()
        self._read_journals()
        try:
            while True:
                bundles = self._bundles(waiting, self._engine.window - len(out), unit, tell)
                tasks = [self._task(bundle, unit, timeout, patience) for bundle in bundles]
                out |= dict(zip(self._engine.submit(tasks), bundles, strict=True))
                if not out and not waiting:
                    return
                if stopping.asked():
                    raise KeyboardInterrupt
                if self.until():
                    raise Enough(OVER)
                if said := self._engine.look():
                    print(f"theorems: {said}", file=sys.stderr)
                lost: dict[int, str] = {}
                for answer in wait(out, LOOK, FIRST_COMPLETED).done:
                    lost |= self._hear(answer, out.pop(answer), unit, tell)
                if lost:
                    waiting.extendleft(reversed(self._again(lost, tell)))
                yield
        finally:
            for answer in out:
                answer.cancel()

    def _read_journals(self) -> None:
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(exist_ok=True)
            self._known = union(self._folder)

    def _bundles(self, waiting: deque[int], room: int, unit: Callable[[int], Any], tell: Tell) -> list[list[int]]:
        """The numbers of the next tasks; units that take alike are neighbours, and go into different ones."""
        size = self._engine.per_task(len(waiting))
        numbers: list[int] = []
        while waiting and len(numbers) < room * size:
            k = waiting.popleft()
            one = unit(k)
            if one is None:
                continue
            held = self._known.get(self._address(k, one))
            if held is None:
                numbers.append(k)
            else:
                tell(k, "finished", decoded(held, result_kind(one)))
        count = -(-len(numbers) // size)
        return [numbers[j::count] for j in range(count)]

    def _address(self, k: int, unit: Any) -> str:
        if k not in self._addresses:
            self._addresses[k] = address(unit, self._run)
        return self._addresses[k]

    def _task(self, bundle: list[int], unit: Callable[[int], Any], timeout: float | None, patience: float) -> Task:
        sent = []
        for k in bundle:
            one = unit(k)
            sent.append(Sent(pickle.dumps(one), self._addresses[k], getattr(one, "foreign", False)))
        return Task(tuple(sent), timeout, patience, self._surroundings, os.getcwd(), str(self._folder or ""))

    def _hear(self, answer: Answer, bundle: list[int], unit: Callable[[int], Any], tell: Tell) -> dict[int, str]:
        """Tell of the units of a task; why there is no answer on those that have none."""
        try:
            said = answer.result()
        except (Exception, CancelledError) as error:
            why = f"was lost ({type(error).__name__}{f': {error}' if str(error) else ''})"
            return dict.fromkeys(bundle, why)
        for k, one in zip(bundle, said, strict=True):
            self._say(k, one, unit(k), tell)
        return {}

    def _say(self, k: int, said: Said, unit: Any, tell: Tell) -> None:
        word, value, done, so_far = said
        if unit is None:
            return
        if done >= 0:
            tell(k, "progressed", done)
        if so_far is not None:
            tell(k, "so far", decoded(so_far, so_far_kind(unit)))
        if word == "finished":
            if "refused" in value:
                raise InvalidInput(f"--engine: {value['refused']}.")
            value = decoded(value["result"], result_kind(unit))
        tell(k, word, value)

    def _again(self, lost: Mapping[int, str], tell: Tell) -> list[int]:
        """Of the units without an answer those that begin again.

        A worker that died has perhaps finished some, as its journal says: they are found there.
        """
        if gone := self._engine.back():
            raise Enough(f"{gone}; go on with --resume")
        self._known = union(self._folder)
        again = []
        for k, why in lost.items():
            self._tries[k] += 1
            if self._tries[k] < TRIES or self._addresses[k] in self._known:
                tell(k, "again", why)
                again.append(k)
            else:
                tell(k, "died", f"{why}, {TRIES} times")
        return again

"""Dask: workers are killed, the scheduler is killed and restarted, and the result equals that of a local run."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reference_attention.errors import InvalidInput
from tests.theorems.run.engines.clusters import Cluster, free_port
from tests.theorems.run.test_pool import Listening
from tests.theorems.run.units import Adding, Letters
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.run.engines import dask_cluster
from theorems.run.engines.coordinator import Coordinator, engine_named
from theorems.run.engines.dask_cluster import OnDask
from theorems.run.engines.dask_task import SubmittedTask
from theorems.run.identity import identity
from theorems.run.journal import Journal
from theorems.run.schedule import run

pytestmark = [
    pytest.mark.skipif(find_spec("distributed") is None, reason='pip install "max-margin-theorems[dask]"'),
    pytest.mark.skipif(sys.platform == "win32", reason="kills process groups"),
]
RUN = identity("add")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), 2)
    yield made
    made.stop()


class Killing(Listening):
    """A handler that calls given functions, each once a given number of steps is done."""

    def __init__(self, at: dict[int, Any]) -> None:
        super().__init__()
        self._at = at

    def progressed(self, id: str, done: int) -> None:
        # Several steps may be done since the last call.
        for step in sorted(self._at):
            if step <= done:
                self._at.pop(step)()


def lines(folder: Path, id: str) -> list[str]:
    return (folder / id).read_text().split()


def test_results_do_not_change_when_workers_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    text = "abcdefghijklmnopqrst"
    chance = random.Random(7)
    moments = {chance.randint(1, 6): cluster.kill_worker, chance.randint(8, 14): cluster.kill_worker}
    engine = OnDask(cluster.address)
    units: list[Any] = [Letters("cut", text, folder=str(tmp_path), seconds=0.1), Adding("whole")]
    journal = Journal(tmp_path / "j", RUN)
    listening = Killing(moments)
    results = run(units, 1, listening, journal=journal, engine=Coordinator(engine, RUN, tmp_path / "j"))
    engine.close()
    journal.close()
    assert not moments
    assert results == run(units, 1, Listening())
    done = lines(tmp_path, "cut")[: -len(text)]
    assert set(done) == set(text)
    assert len(done) <= len(text) + 2 * 2  # units that ran when workers died were restarted


def test_the_units_of_a_suspended_worker_go_to_another(tmp_path: Path) -> None:
    stopping = Cluster(tmp_path, 2, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="5 s")
    try:
        stopping.wait()
        engine = OnDask(stopping.address)
        units = [Letters("cut", "abcdefghij", folder=str(tmp_path), seconds=0.1)]
        moments = {2: stopping.stop_worker}
        results = run(units, 1, Killing(moments), engine=hang_fails(engine))
        engine.close()
    finally:
        stopping.stop()
    assert not moments
    assert results == run([Letters("cut", "abcdefghij")], 1, Listening())


def hang_fails(engine: OnDask, journal: Path | None = None) -> Coordinator:
    """Return a coordinator with a time limit, so that a test fails where the run would wait for ever."""
    coordinator = Coordinator(engine, RUN, journal)
    over = time.monotonic() + 300
    coordinator.until = lambda: time.monotonic() > over
    return coordinator


def cut_off(engine: OnDask) -> None:
    """Close the client's connection to the scheduler without the client's knowledge."""
    engine._client.loop.add_callback(engine._client._handle_report_task.cancel)


def deafen(engine: OnDask) -> None:
    """Make the client ignore the scheduler's messages about its tasks."""
    for word in ("key-in-memory", "cancelled-keys"):
        engine._client._stream_handlers[word] = lambda **_: None


@pytest.mark.parametrize("unnoticed", [False, True])
def test_a_scheduler_may_be_killed_and_restarted(cluster: Cluster, tmp_path: Path, unnoticed: bool) -> None:
    def restart() -> None:
        if unnoticed:
            cut_off(engine)
        cluster.restart()

    units = [Letters("cut", "abcdefghijkl", folder=str(tmp_path), seconds=0.1)]
    listening = Killing({3: restart})
    engine = OnDask(cluster.address)
    results = run(units, 1, listening, engine=hang_fails(engine, tmp_path / "j"))
    engine.close()
    assert results == run([Letters("cut", "abcdefghijkl")], 1, Listening())
    assert set(lines(tmp_path, "cut")) == set("abcdefghijkl")
    assert len(lines(tmp_path, "cut")) <= 12 + 2
    assert listening.sentences
    if unnoticed:
        assert "scheduler-connection-lost" not in "".join(listening.sentences)  # the internal message of Dask


@pytest.mark.parametrize(
    ("break_it", "message"),
    [(cut_off, "the connection to the scheduler was lost"), (deafen, "the scheduler lost the task")],
)
def test_a_client_that_receives_nothing_is_replaced(
    cluster: Cluster, tmp_path: Path, break_it: Callable[[OnDask], None], message: str
) -> None:
    engine = OnDask(cluster.address)
    break_it(engine)
    listening = Listening()
    results = run([Adding("a"), Adding("b")], 1, listening, engine=hang_fails(engine, tmp_path / "j"))
    engine.close()
    assert results == run([Adding("a"), Adding("b")], 1, Listening())
    assert f"(ConnectionError: {message})" in listening.sentences[0]


def test_a_result_that_cannot_be_fetched_is_found_in_the_journal(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OnDask(cluster.address)
    fetch, failures = engine._client._gather_remote, [OSError("reset by peer")]

    async def failing(*arguments: Any) -> Any:
        if failures:
            engine._client._gather_keys = None
            engine._client._gather_future = None
            raise failures.pop()
        return await fetch(*arguments)

    monkeypatch.setattr(engine._client, "_gather_remote", failing)
    listening = Listening()
    units = [Letters("one", "x", folder=str(tmp_path))]
    results = run(units, 1, listening, engine=hang_fails(engine, tmp_path / "j"))
    engine.close()
    assert results == run([Letters("one", "x")], 1, Listening())
    assert lines(tmp_path, "one") == ["x"]
    message = "one: the process that worked on it was lost (ConnectionError: its result could not be fetched)"
    assert listening.sentences == [f"{message}; it is restarted in another one."]


@pytest.mark.parametrize(
    ("looks", "lost"),
    [
        ([None, None, None], False),  # the scheduler has not received the task yet
        ([None, "queued", "processing", "processing"], False),
        (["processing", "memory"], False),  # the result is on its way back
        (["processing", "memory", "memory"], True),
        (["erred", "erred"], True),
        (["memory", "processing", "memory"], False),  # a worker died with the result, which is computed again
        (["waiting", None], True),
    ],
)
def test_a_task_is_lost_once_the_scheduler_forgets_it(looks: list[str | None], lost: bool) -> None:
    one = SubmittedTask(SimpleNamespace(status="pending"))
    assert [one.is_lost(there) for there in looks] == [False] * (len(looks) - 1) + [lost]
    heard = SubmittedTask(SimpleNamespace(status="finished"))
    heard.answer.set_result([])
    assert not any(heard.is_lost(there) for there in [*looks, None])


def test_verify_prints_the_same_bytes_on_a_cluster_as_locally(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = []
    for name in (f"dask://{cluster.address}", "local"):
        command = ["verify", "lemma-9", "lemma-11", "--examples", "4", "--json", "found.json", "--engine", name]
        assert main([*command, "--jobs", "1"]) == Exit.UPHELD
        record = json.loads((tmp_path / "found.json").read_text())
        for statement in record["statements"]:
            del statement["seconds"]
        messages.append(json.dumps(record))
    assert messages[0] == messages[1]


def test_a_scheduler_that_does_not_return_ends_the_run_with_its_results(tmp_path: Path) -> None:
    short = Cluster(tmp_path, 1)
    engine = OnDask(short.address, away=0.5)
    try:
        listening = Killing({2: short.stop})
        [results] = run([Letters("cut", "abcdefgh", seconds=0.1)], 1, listening, engine=Coordinator(engine, RUN))
    finally:
        short.stop()
        engine.close()
    assert results.text.startswith("<ab")
    assert results.failed == f"the scheduler at {short.address} was away for 0.5 s; go on with --resume"


@pytest.mark.parametrize("name", ["dask://nowhere", "dask://", "dask://a b:1", "dusk", "slurm"])
def test_an_unknown_engine_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--engine.*(HOST:PORT)"):
        engine_named(name)


def test_a_missing_scheduler_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECTING", 0.5)
    name = f"dask://127.0.0.1:{free_port()}"
    assert main(["verify", "lemma-11", "--engine", name]) == Exit.BAD_INPUT
    err = capsys.readouterr().err
    assert err.startswith(f"theorems: --engine {name}: no scheduler answers there (")
    assert len(err.splitlines()) == 1


def test_without_dask_the_message_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["verify", "lemma-11", "--engine", "dask://127.0.0.1:1"]) == Exit.BAD_INPUT
    message = 'theorems: --engine dask://: needs Dask: pip install "max-margin-theorems[dask]"\n'
    assert capsys.readouterr().err == message

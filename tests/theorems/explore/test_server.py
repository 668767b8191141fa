"""Access to the page: only from this machine and at the secret address, until the terminal closes."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.theorems.explore.browser import served
from theorems.command.app import main
from theorems.core.exit_code import Exit

pytestmark = pytest.mark.skipif(find_spec("bokeh") is None, reason="needs the extra explore")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("--data", "figure-1a") as (result, _):
        yield result


def answer(address: str, path: str = "", **headers: str) -> tuple[int, str]:
    """Return the status and text of a request with the given headers."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", path or parts.path, headers=headers)
    result = connection.getresponse()
    return result.status, result.read().decode("utf-8", "replace")


def test_only_addresses_with_the_secret_token_are_answered(address: str) -> None:
    assert answer(address)[0] == 200
    for path in ("/", "/wrong/", "/static/js/bokeh.min.js", "/ws", "/wrong/ws", "/autoload.js"):
        assert answer(address, path)[0] == 404, path


@pytest.mark.parametrize("host", ["evil.org", "evil.org:80", "127.0.0.1.evil.org", "192.168.0.1", "127x0x0x1", ""])
def test_a_request_for_another_host_is_refused(address: str, host: str) -> None:
    """A foreign page can make a browser send such a request if the page's host name points to this machine."""
    status, text = answer(address, Host=host)
    assert status in (400, 404)
    assert "theorems" not in text


@pytest.mark.parametrize(("origin", "status"), [("http://evil.org", 403), ("http://127.0.0.1:1", 403), ("", 101)])
def test_a_web_socket_is_opened_only_from_its_own_page(address: str, origin: str, status: int) -> None:
    parts = urlsplit(address)
    token = answer(address)[1].partition('"token":"')[2].partition('"')[0]
    assert token
    lines = (
        f"GET {parts.path}ws HTTP/1.1",
        f"Host: {parts.netloc}",
        f"Origin: {origin or f'http://{parts.netloc}'}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"Sec-WebSocket-Protocol: bokeh, {token}",
        "\r\n",
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as held:
        held.sendall("\r\n".join(lines).encode())
        assert int(held.recv(100).split()[1]) == status


@pytest.mark.parametrize(
    "token", ["", "junk", "e30", "!", "bnVsbA", "eyJzZXNzaW9uX2lkIjogMSwgIl9femxpYiI6IDN9", "x" * 60000]
)
def test_an_invalid_token_is_refused(address: str, token: str) -> None:
    status, text = answer(
        address, f"{urlsplit(address).path}ws", **{"Sec-WebSocket-Protocol": f"bokeh, {token}", "Upgrade": "websocket"}
    )
    assert status in (400, 404)
    assert "Traceback" not in text


def test_the_server_listens_on_this_machine_only(address: str) -> None:
    port = urlsplit(address).port
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    places = [parts[1].split(":") for parts in listening if parts[3] == "0A"]
    assert {host for host, held in places if int(held, 16) == port} == {"0100007F"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_the_server_and_its_children_end_with_their_terminal(number: signal.Signals, code: int) -> None:
    with served("--data", "figure-1a") as (address, process):
        assert answer(address)[0] == 200  # the page and its process for computations have started
        until = time.monotonic() + 30
        while not (children := children_of(process)) and time.monotonic() < until:
            time.sleep(0.05)
        assert children
        process.send_signal(number)
        assert process.wait(20) == code
        until = time.monotonic() + 20
        while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
            time.sleep(0.05)
        assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def children_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the child processes of a command."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def test_a_damaged_link_is_reported_and_the_data_of_the_command_are_shown(address: str) -> None:
    assert answer(address, f"{urlsplit(address).path}?state=AAAA")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nothing"], "neither a file"),
        (["--html", "/nowhere/page.html"], "there is no directory"),
        (["--data", "http://127.0.0.1:5006/x/?state=damaged"], "link: it holds no data"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", "--no-open", *arguments]) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_port_in_use_is_reported_in_a_sentence(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = urlsplit(address).port
    assert main(["explore", "--no-open", "--port", str(port)]) == Exit.BAD_INPUT
    assert f"--port: {port} cannot be used" in capsys.readouterr().err

"""Which broker a client calls about a run: the one that answers name, while it answers."""

from __future__ import annotations

import asyncio
import http.server
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from webloom import _call
from webloom._executors import HEADER, Executors, run_of
from webloom.client import AsyncClient

RUN = uuid.uuid4().hex
QUEUE = f"/requestqueue/{RUN}"


class _Broker(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.names: str | None = None
        self.pushes, self.is_silent, self.status = 0, False, 200
        self.was_tried, self.goes_on = threading.Event(), threading.Event()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Broker

    def do_GET(self) -> None:
        self.server.was_tried.set()
        self._answer(500 if self.server.is_silent else 200, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.is_silent:
            self.server.goes_on.wait(60)
        if self.server.status == 200:
            self.server.pushes += 1
        self._answer(self.server.status, b"{}")

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if self.server.names and self.command == "POST":
            self.send_header(HEADER, self.server.names)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _pair() -> Iterator[tuple[_Broker, _Broker]]:
    """A leader, and the broker that executes the run."""
    with _Broker() as leader, _Broker() as executor:
        leader.names = executor.names = executor.url
        for broker in (leader, executor):
            threading.Thread(target=broker.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield leader, executor
        finally:
            for broker in (leader, executor):
                broker.goes_on.set()
                broker.shutdown()


async def _push(client: AsyncClient) -> None:
    assert (await client._send("POST", QUEUE, body=[])).status_code == 200


async def _known(client: AsyncClient, executor: _Broker) -> None:
    """Pushes until the client has reached the broker that executes the run."""
    await _push(client)
    await asyncio.to_thread(executor.was_tried.wait, 60)
    for _ in range(10_000):
        if executor.pushes:
            return
        await _push(client)
    raise AssertionError("the second broker was never called")


def _with_pair(test: Callable[[AsyncClient, _Broker, _Broker], Awaitable[None]]) -> None:
    """Runs a test with a client that calls the second broker."""

    async def main() -> None:
        with _pair() as (leader, executor):
            async with AsyncClient(leader.url, token=None) as client:
                await _known(client, executor)
                await test(client, leader, executor)

    asyncio.run(main())


def test_calls_go_to_the_broker_that_executes_the_run_and_back_when_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_call, "LOOK_S", 0.05)

    async def test(client: AsyncClient, leader: _Broker, executor: _Broker) -> None:
        at_leader = leader.pushes
        await _push(client)
        assert (leader.pushes, executor.pushes) == (at_leader, 2)
        # It hangs: it does not answer what asks nothing either.
        executor.is_silent = True
        await _push(client)
        await _push(client)
        assert (leader.pushes, executor.pushes) == (at_leader + 2, 2), "it is not tried again at once"

    _with_pair(test)


def test_a_token_that_only_the_leader_knows_is_tried_there() -> None:
    async def test(client: AsyncClient, leader: _Broker, executor: _Broker) -> None:
        at_leader, executor.status = leader.pushes, 401
        await _push(client)
        assert (leader.pushes, executor.pushes) == (at_leader + 1, 1)

    _with_pair(test)


def test_a_run_that_has_moved_is_called_where_it_is() -> None:
    async def test(client: AsyncClient, leader: _Broker, executor: _Broker) -> None:
        at_leader, executor.names = leader.pushes, None
        await _push(client)
        await _push(client)
        assert (leader.pushes, executor.pushes) == (at_leader + 1, 2)

    _with_pair(test)


@pytest.mark.parametrize(
    ("asked", "named", "is_usable"),
    [
        ("http://a", "http://b:1", True),
        ("http://a", "https://b:1/", True),
        ("https://a", "http://b:1", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", True),
        ("http://a", "http://127.0.0.1:1", False),
        ("http://a", "http://[::1]:1", False),
        ("http://a", "ftp://b", False),
        ("http://a", "http://[", False),
        ("http://a", None, False),
    ],
)
def test_an_address_that_leads_elsewhere_is_not_called(asked: str, named: str | None, is_usable: bool) -> None:
    executors = Executors()
    url = executors.answered(RUN, asked, named)
    assert (url is not None) == is_usable
    assert executors.of(RUN) is None
    if url is not None:
        executors.tried(url, True)
        assert executors.of(RUN) == url
        assert executors.answered(RUN, url, None) is None
        assert executors.of(RUN) is None


def test_only_calls_about_a_queue_are_about_a_run() -> None:
    assert run_of(QUEUE) == run_of(QUEUE + "/ack") == RUN
    assert run_of("/api/v1/runs") is run_of("/requestqueue/7") is None

"""The connection of a worker, against a broker that does what the test wants."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from support import PATIENCE_S, wait_until
from webloom import ConfigurationError, WorkerRejected
from webloom._engine import Engine, Hooks
from webloom._outbox import Outbox
from webloom._settings import Settings
from webloom.task import Attempt

ORDER = {"identity": "1" * 32, "attempt": 1, "jobId": "2" * 32, "handler": "f", "lease": 10_000}


class Fake:
    """A broker: what it received, and how it talks to each connection."""

    def __init__(self, talk: Callable[[ServerConnection, Fake], None]) -> None:
        self.connections = self.longest = 0
        self.received: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._talk = talk
        self._server: Server = serve(self._serve, "127.0.0.1", 0, max_size=4 << 20)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _serve(self, socket: ServerConnection) -> None:
        self.connections += 1
        try:
            self._talk(socket, self)
            for text in socket:
                self.longest = max(self.longest, len(text.encode() if isinstance(text, str) else text))
                self.received.put(json.loads(text))
        except ConnectionClosed:
            pass

    def next(self, kind: str) -> Any:
        while (message := self.received.get(timeout=PATIENCE_S))["t"] != kind:
            pass
        return message["v"]

    def close(self) -> None:
        self._server.shutdown()


def welcome(socket: ServerConnection, _: Fake) -> None:
    socket.send(json.dumps({"t": "welcome", "v": {"heartbeat": 3000, "offline": 10_000, "separateReports": True}}))


def engine_of(broker: Fake, outbox: Outbox | None = None, **hooks: Any) -> Engine:
    def nothing(*_: Any) -> None: ...

    watch = {"classNames": ["f"], "worker": {"slots": 1}}
    all_ = dict.fromkeys(("begin", "start", "ended", "drain", "ready", "lost", "over"), nothing)
    given = Hooks(**{"watch": lambda: watch, "knows": lambda _: True, **all_, **hooks})
    return Engine(Settings.read(broker.url), "3" * 32, "test", 1, given, outbox)


def send(socket: ServerConnection, kind: str, value: Any) -> None:
    socket.send(json.dumps({"t": kind, "v": value}))


def welcome_and_order(socket: ServerConnection, fake: Fake) -> None:
    welcome(socket, fake)
    send(socket, "tasks", [ORDER])


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[Engine]:
    engine.begin()
    try:
        yield engine
    finally:
        engine.drain(0)
        engine.join(PATIENCE_S)


@pytest.fixture
def broker() -> Iterator[Fake]:
    made = Fake(welcome)
    yield made
    made.close()


def test_a_worker_that_is_stopped_while_it_connects_leaves_at_once(broker: Fake) -> None:
    engine = engine_of(broker)
    engine.drain(60)
    engine.begin()
    engine.join(10)
    assert not engine._thread.is_alive()


def test_a_broker_that_says_nothing_is_left() -> None:
    broker = Fake(lambda *_: None)
    engine = engine_of(broker)
    engine._heartbeat_s = engine._offline_s = 0.1
    engine.begin()
    try:
        wait_until(lambda: broker.connections > 1, "a second connection")
    finally:
        engine.drain(0)
        engine.join(PATIENCE_S)
        broker.close()


def test_the_loss_of_a_connection_is_told_if_it_was_confirmed() -> None:
    lost = threading.Semaphore(0)
    confirmed = iter([False, True])

    def talk(socket: ServerConnection, fake: Fake) -> None:
        welcome(socket, fake)
        socket.recv()
        if next(confirmed, False):
            socket.send(json.dumps({"t": "watching", "v": {"classNames": ["f"]}}))
        socket.close()

    broker = Fake(talk)
    engine = engine_of(broker, lost=lost.release)
    engine.begin()
    try:
        assert lost.acquire(timeout=PATIENCE_S)
        assert broker.connections >= 2
    finally:
        engine.drain(0)
        engine.join(PATIENCE_S)
        broker.close()


def test_a_result_is_sent_though_the_outbox_cannot_keep_it(broker: Fake, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    pages = outbox._db.execute("PRAGMA page_count").fetchone()[0]
    outbox._db.execute(f"PRAGMA max_page_count = {pages}")

    def order(socket: ServerConnection, fake: Fake) -> None:
        welcome(socket, fake)
        socket.send(json.dumps({"t": "tasks", "v": [ORDER]}))

    broker._talk = order
    result = "x" * 100_000

    def begin(attempt: Attempt) -> None:
        engine.finish(attempt, {**attempt.ref, "state": "success", "result": result})

    engine = engine_of(broker, outbox, begin=begin)
    engine.begin()
    try:
        assert broker.next("reports")[0]["result"] == result
        assert outbox.load() == {}, "the disk is full"
    finally:
        engine.drain(0)
        engine.join(PATIENCE_S)


def test_a_watch_that_the_broker_cannot_store_is_sent_again(broker: Fake) -> None:
    def talk(socket: ServerConnection, fake: Fake) -> None:
        welcome(socket, fake)
        kinds: list[str] = []
        while kinds.count("watch") < 3:
            kinds.append(json.loads(socket.recv())["t"])
            send(socket, "error", {"status": 503, "detail": "the disk is full"})
        send(socket, "watching", {"classNames": ["f"]})

    broker._talk = talk
    is_ready = threading.Event()
    with running(engine_of(broker, ready=is_ready.set)):
        assert is_ready.wait(PATIENCE_S)
    assert broker.connections == 1


def test_another_leader_on_the_same_connection_gets_everything_again(broker: Fake) -> None:
    begins = threading.Event()

    def talk(socket: ServerConnection, fake: Fake) -> None:
        welcome_and_order(socket, fake)
        while (message := json.loads(socket.recv()))["t"] != "reports":
            pass
        fake.received.put(message)
        assert begins.is_set()
        welcome(socket, fake)

    broker._talk = talk

    def begin(attempt: Attempt) -> None:
        begins.set()
        engine.finish(attempt, {**attempt.ref, "state": "success", "result": 7})

    engine = engine_of(broker, begin=begin)
    engine.begin()
    try:
        assert broker.next("reports")[0]["result"] == 7
        ref = {"identity": ORDER["identity"], "attempt": 1}
        assert [{key: task[key] for key in ref} for task in broker.next("watch")["tasks"]] == [ref]
        assert broker.next("reports")[0]["result"] == 7
        assert broker.connections == 1
    finally:
        engine.drain(0)
        engine.join(PATIENCE_S)


@pytest.mark.parametrize(("status", "error"), [(422, ConfigurationError), (403, WorkerRejected)])
def test_a_watch_that_is_not_allowed_ends_the_worker(broker: Fake, status: int, error: type[Exception]) -> None:
    def talk(socket: ServerConnection, fake: Fake) -> None:
        welcome(socket, fake)
        send(socket, "error", {"status": status, "detail": "at most 20 tags", "field": "worker.tags"})

    broker._talk = talk
    engine = engine_of(broker)
    engine.begin()
    engine.join(PATIENCE_S)
    assert isinstance(engine.error, error)
    assert "at most 20 tags" in str(engine.error)


def test_an_error_about_reports_is_none_of_the_watch(broker: Fake) -> None:
    def talk(socket: ServerConnection, fake: Fake) -> None:
        welcome(socket, fake)
        send(socket, "error", {"status": 422, "detail": "no JSON", "field": "[0].result"})
        send(socket, "watching", {"classNames": ["f"]})

    broker._talk = talk
    is_ready = threading.Event()
    with running(engine_of(broker, ready=is_ready.set)) as engine:
        assert is_ready.wait(PATIENCE_S)
    assert engine.error is None


def test_a_worker_that_is_kicked_stops_its_tasks(broker: Fake) -> None:
    def talk(socket: ServerConnection, fake: Fake) -> None:
        welcome(socket, fake)
        send(socket, "tasks", [ORDER])
        send(socket, "kicked", {"reason": "it runs wild"})

    broker._talk = talk
    did: list[str] = []

    def begin(attempt: Attempt) -> None:
        attempt.ask, attempt.stop = lambda: did.append("ask"), lambda: did.append("stop")

    engine = engine_of(broker, begin=begin)
    engine.begin()
    engine.join(PATIENCE_S)
    assert isinstance(engine.error, WorkerRejected)
    assert did == ["ask", "stop"]


def test_a_task_that_cannot_begin_is_refused_and_does_not_begin_later(broker: Fake) -> None:
    """Its call may be queued already when no thread can be started."""
    broker._talk = welcome_and_order
    queued: list[Attempt] = []

    def begin(attempt: Attempt) -> None:
        queued.append(attempt)
        raise RuntimeError("can't start new thread")

    with running(engine_of(broker, begin=begin)):
        assert broker.next("reports")[0]["state"] == "refused"
    assert queued[0].is_told


def test_the_largest_report_fits_into_a_message(broker: Fake) -> None:
    """256 KiB each of result and data, which would be three times as long with escapes."""
    broker._talk = welcome_and_order
    value = "я" * (128 * 1024 - 1)

    def begin(attempt: Attempt) -> None:
        engine.finish(attempt, {**attempt.ref, "state": "success", "result": value, "data": value})

    engine = engine_of(broker, begin=begin)
    with running(engine):
        assert broker.next("reports")[0]["data"] == value
    assert broker.longest <= 1 << 20


def test_a_connection_whose_reports_fail_is_made_again(broker: Fake) -> None:
    broker._talk = welcome_and_order

    def begin(attempt: Attempt) -> None:
        engine.finish(attempt, {**attempt.ref, "state": "success"})

    engine = engine_of(broker, begin=begin)
    compose, fails = engine._compose, iter([True])

    def composed() -> Iterable[str]:
        if next(fails, False):
            raise RuntimeError("no report can be made")
        return compose()

    engine._compose = composed  # type: ignore[method-assign]
    with running(engine):
        assert broker.next("reports")[0]["state"] == "success"
    assert broker.connections == 2

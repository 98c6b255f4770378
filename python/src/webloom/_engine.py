"""The connection of a worker: it keeps leases, takes orders, sends reports. It has a thread and an event loop of its own, so
that no handler can keep it from its heartbeats.

The rules are those of docs/protocol.md, section 4, "Leases".
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from ._outbox import Outbox
from ._settings import Backoff, Settings
from .errors import ConfigurationError, WorkerRejected
from .task import Attempt, Key, key_of, ref_of

log = logging.getLogger("webloom.worker")

#: Bytes of one message of reports; the broker takes 1 MiB.
MOST_MESSAGE = 800_000
#: How often a last report is sent alone, after a refusal, before it is given up; and characters of the message that says so.
MOST_REFUSALS, MOST_ERROR = 3, 2_000
#: Seconds after which a last report that is not acknowledged is sent again.
AGAIN_S = 3.0
#: Seconds after which a task that has said nothing says that it is at work.
SAY_S = 0.5

#: Seconds after the end of a drain at which tasks that were cancelled are stopped, and at which the worker leaves anyhow.
POLITE_S, LAST_S = 2.0, 5.0

# With characters as they are: escaped, a result that the broker takes could be longer than a message.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass
class Unsettled:
    """A last report that the broker has not acknowledged."""

    report: dict[str, Any]
    sent_at: float = 0.0
    first_sent_at: float | None = None  # on this connection
    is_kept: bool = False
    refusals: int = 0  # how often it was sent alone, after the broker had refused a message


@dataclass
class Hooks:
    """What the engine needs of the worker. All are called in the engine's thread."""

    watch: Callable[[], dict[str, Any]]  # the class names, and who the worker is
    knows: Callable[[str], bool]  # whether a task of this name is watched
    begin: Callable[[Attempt], None]
    start: Callable[[dict[str, Any]], None]  # a run of a spider
    ended: Callable[[dict[str, Any]], None]
    drain: Callable[[str], None]
    ready: Callable[[], None]
    lost: Callable[[], None]  # the connection to a broker that had confirmed what is watched
    over: Callable[[], None]


class Engine:
    """See the module."""

    def __init__(self, settings: Settings, worker_id: str, name: str, slots: int, hooks: Hooks, outbox: Outbox | None) -> None:
        self.settings, self.hooks, self.outbox = settings, hooks, outbox
        self.worker_id, self.name, self.slots = worker_id, name, slots
        self.error: BaseException | None = None
        self.tasks: dict[Key, Attempt] = {}
        self.unsettled: dict[Key, Unsettled] = {}
        if outbox is not None:
            self.unsettled = {key: Unsettled(report, is_kept=True) for key, report in outbox.load().items()}
        self._unsent: list[Unsettled] = []  # those of `unsettled` that have ended since the last message
        self._sends_again = True  # whether others of `unsettled` may be due: all are looked at for the next message
        self.runs: set[str] = set()
        self._early: collections.deque[dict[str, Any]] = collections.deque()  # lines that go before a last report
        self._proved = 0.0
        self._heartbeat_s, self._offline_s = 3.0, 10.0
        self._beat_at = 0.0
        self._refusal: str | None = None
        self._inbox: collections.deque[Callable[[], None] | None] = collections.deque()
        self._is_woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: ClientConnection | None = None
        self._is_watching = False
        self._watch_timer: asyncio.TimerHandle | None = None
        self._was_connected = False
        self._separate_reports = False
        self._draining_until: float | None = None
        self._broker = 0
        self._thread = threading.Thread(target=self._main, name="webloom-connection", daemon=True)

    # From any thread.

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def post(self, call: Callable[[], None] | None = None) -> None:
        """Has the engine's thread call something; `None`: look for what there is to say."""
        self._inbox.append(call)
        if not self._is_woken:
            self._is_woken = True
            loop = self._loop
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # closed: the worker has ended
                    loop.call_soon_threadsafe(self._look)

    def finish(self, attempt: Attempt, report: dict[str, Any]) -> None:
        """An attempt has ended."""
        self.post(lambda: self._finish(attempt, report))

    def drain(self, grace_s: float) -> None:
        """Takes nothing new, and ends when what is in hand is done; after so many seconds it is cancelled."""
        self.post(lambda: self._drain(grace_s))

    def hold_run(self, identity: str) -> None:
        """A crawl is in hand."""
        self.post(lambda: self.runs.add(identity))

    def let_go(self, identity: str) -> None:
        """A crawl is over, or given up."""

        def call() -> None:
            self.runs.discard(identity)
            if self._draining_until is not None:
                self._watch_again()
                self._leave_if_done()

        self.post(call)

    # In the engine's thread.

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.error = self.error or error
        finally:
            self._loop = None
            if self.outbox is not None:
                self.outbox.close()
            self.hooks.over()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._out = asyncio.Event()
        self._beat = asyncio.Event()
        self._leave = asyncio.Event()
        self._is_woken = True
        self._look()
        keeper = asyncio.create_task(self._keep_leases())
        tls = self.settings.tls() if self.settings.uses_tls() else None
        backoff = Backoff()
        try:
            while not self._leave.is_set():
                address = self.settings.brokers[self._broker % len(self.settings.brokers)]
                try:
                    await self._connection(address, tls, backoff)
                except InvalidStatus as error:
                    self._refused(address, error)
                except (OSError, WebSocketException, asyncio.TimeoutError, EOFError) as error:
                    if self._leave.is_set():
                        level = logging.DEBUG
                    elif isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code == 1012:
                        level = logging.INFO  # The broker was stopped.
                    else:
                        level = logging.WARNING
                    log.log(level, "connection lost broker=%s error=%s", address, str(error) or type(error).__name__)
                finally:
                    if self._is_watching:
                        self.hooks.lost()
                    self._socket, self._is_watching = None, False
                    self._forget_waiting()
                if self._leave.is_set():
                    break
                self._broker += 1
                pause = backoff.next() if self._broker % len(self.settings.brokers) == 0 else 0.05
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._leave.wait(), pause)
        finally:
            keeper.cancel()
            # What is at work here is another worker's now, or soon.
            for attempt in self.tasks.values():
                attempt.cancel("the worker has ended")
                if not attempt.stopped:
                    attempt.stopped = True
                    attempt.stop()

    def _refused(self, address: str, error: InvalidStatus) -> None:
        status = error.response.status_code
        try:
            problem = json.loads(error.response.body or b"{}")
            detail = problem.get("detail") or problem.get("title") or ""
        except (ValueError, AttributeError):
            detail = ""
        # A token that was right before may come back to the token file.
        if status == 403 or (status == 401 and not self._was_connected):
            raise WorkerRejected(f"{address} answered {status}: {detail or 'no detail'}") from None
        log.warning("broker refused the connection broker=%s status=%s detail=%s", address, status, detail)

    async def _connection(self, address: str, tls: Any, backoff: Backoff) -> None:
        scheme, _, rest = address.partition("://")
        direct = {"direct": "true"} if len(self.settings.brokers) > 1 else {}
        query = urlencode({"workerid": self.worker_id, "name": self.name, **direct})
        uri = f"{'wss' if scheme == 'https' else 'ws'}://{rest}/worker?{query}"
        began = time.monotonic()
        async with connect(
            uri,
            additional_headers=self.settings.headers(),
            ssl=tls if scheme == "https" else None,
            max_size=64 << 20,
            compression=None,
            ping_interval=None,
            # A new leader waits 10 s for the workers of its runs, and other brokers may hang, too.
            open_timeout=5,
            close_timeout=2,
        ) as socket:
            self._proved = began
            self._socket = socket
            if self._leave.is_set():
                return  # it was to leave while it connected, when there was no socket to close
            sender: asyncio.Task[None] | None = None
            beater: asyncio.Task[None] | None = None
            try:
                async for text in socket:
                    message = json.loads(text)
                    kind, value = message.get("t"), message.get("v")
                    if kind == "welcome":
                        # It comes again when another broker leads, or when this one has had to rebuild what it knows.
                        is_first = sender is None
                        self._was_connected, self._is_watching = True, False
                        self._separate_reports = bool(value.get("separateReports"))
                        self._refusal = None
                        self._heartbeat_s, self._offline_s = value["heartbeat"] / 1000, value["offline"] / 1000
                        # The broker may have given tasks that have not begun to others.
                        self._forget_waiting()
                        await self._send_watch(socket)
                        for unsettled in self.unsettled.values():
                            unsettled.sent_at = 0.0
                            if is_first:
                                unsettled.first_sent_at = None
                        self._sends_again = True
                        self._beat_before(time.monotonic())
                        sender = sender or asyncio.create_task(self._guarded(self._send_reports, socket))
                        beater = beater or asyncio.create_task(self._guarded(self._send_heartbeats, socket))
                        self._out.set()
                    elif kind == "watching":
                        if not self._is_watching:
                            self._is_watching = True
                            backoff.reset()
                            names = ",".join(value["classNames"])
                            log.info("connected broker=%s worker_id=%s watches=%s", address, self.worker_id, names)
                            self.hooks.ready()
                    elif kind == "error" and not self._is_watching:
                        self._watch_refused(value or {}, backoff)
                    elif kind == "kicked":
                        raise WorkerRejected(f"an operator kicked this worker: {value.get('reason') or 'no reason given'}")
                    else:
                        self._take(kind, value)
            finally:
                for task in (sender, beater):
                    if task is not None:
                        task.cancel()

    def _watch_refused(self, problem: dict[str, Any], backoff: Backoff) -> None:
        """An error before `watching`. Without a watch the broker gives this worker nothing."""
        status, detail = problem.get("status", 400), problem.get("detail") or problem.get("title") or "no detail"
        field = str(problem.get("field") or "")
        if not self._separate_reports or field.startswith("["):
            self._take("error", problem)  # it is about reports
        elif status == 403:
            raise WorkerRejected(f"the broker refused this worker: {detail}")
        elif status < 500 and status != 429:
            raise ConfigurationError(f"the broker does not take what this worker says of itself: {field}: {detail}")
        elif self._loop is not None and (self._watch_timer is None or self._watch_timer.when() <= self._loop.time()):
            log.warning("broker cannot store what this worker watches, trying again error=%s", detail)
            self._watch_timer = self._loop.call_later(backoff.next(), self._watch_again)

    def _take(self, kind: str, value: Any) -> None:
        if kind == "tasks":
            for order in value:
                self._order(order)
        elif kind == "settled":
            self._settle(value)
        elif kind == "cancel":
            attempt = self.tasks.get(key_of(value["task"]))
            if attempt is not None:
                attempt.by_broker = True
                reason = value.get("reason") or "cancelled"
                if attempt.began_at is None:
                    self._finish(attempt, {**attempt.ref, "state": "cancelled", "error": {"message": reason}})
                else:
                    attempt.cancel(reason)
        elif kind == "start":
            self.hooks.start(value)
        elif kind == "ended":
            self.hooks.ended(value)
        elif kind == "drain":
            self.hooks.drain(value.get("reason") or "")
        elif kind == "error":
            value = value or {}
            log.error("broker refused a message detail=%s field=%s", value.get("detail"), value.get("field"))
            if self._separate_reports:
                # The other reports of the message count. A refused one is settled if it was the last of its task.
                return
            # The message is refused as a whole. From now on each last report goes alone, so that one does not hold up the others.
            self._refusal = str(value.get("detail") or value.get("title") or "no detail")
            for unsettled in self.unsettled.values():
                unsettled.sent_at = 0.0
            self._sends_again = True
            if self._loop is not None:
                self._loop.call_later(0.2, self._out.set)

    def _order(self, order: dict[str, Any]) -> None:
        key = key_of(order)
        if key in self.tasks:
            return
        if key in self.unsettled:
            self.unsettled[key].sent_at = 0.0
            self._sends_again = True
            self._out.set()
            return
        attempt = Attempt(order, self.post)
        refusal = None
        if self._draining_until is not None:
            refusal = "the worker ends"
        elif not self.hooks.knows(order["handler"]):
            refusal = f"the task `{order['handler']}` is not known here"
        elif len(self.tasks) >= self.slots:
            refusal = "all slots are taken"
        if refusal is not None:
            self._finish(attempt, {**attempt.ref, "state": "refused", "error": {"message": refusal}})
            return
        self.tasks[key] = attempt
        attempt.lease_end = self._proved + attempt.lease_s
        now = time.monotonic()
        left = attempt.lease_end - now
        if left < attempt.lease_s / 2:
            self._beat_before(now)  # it begins when the heartbeat is answered
        else:
            self._beat_before(now + (left - warning_s(attempt.lease_s)) / 3)
            self._begin(attempt)

    def _beat_before(self, when: float) -> None:
        if when < self._beat_at:
            self._beat_at = when
            self._beat.set()

    def _begin(self, attempt: Attempt) -> None:
        attempt.began_at = time.monotonic()
        try:
            self.hooks.begin(attempt)
        except Exception as error:
            # No thread could be started, for example. The call may still be queued; then it must not begin.
            attempt.cancel("it was refused")
            self._finish(attempt, {**attempt.ref, "state": "refused", "error": {"message": str(error)}})

    def _finish(self, attempt: Attempt, report: dict[str, Any]) -> None:
        self.tasks.pop(attempt.key, None)
        if attempt.key in self.unsettled:
            return
        lines = attempt.take_lines()
        while lines and attempt.is_dirty:  # more than fit into the last report go before it
            self._early.append({**attempt.ref, "state": "running", "logs": lines})
            lines = attempt.take_lines()
        if lines:
            report = {**report, "logs": lines}
        unsettled = self.unsettled[attempt.key] = Unsettled(report)
        self._unsent.append(unsettled)
        self._out.set()

    def _settle(self, settled: Iterable[dict[str, Any]]) -> None:
        gone = []
        for each in settled:
            key = key_of(each)
            unsettled = self.unsettled.pop(key, None)
            if unsettled is None:
                continue
            # It may be the answer to the first time that it was sent.
            if unsettled.first_sent_at is not None:
                self._proved = max(self._proved, unsettled.first_sent_at)
            if unsettled.is_kept:
                gone.append(key)
            if each.get("refused"):
                log.warning("report changed nothing run_id=%s attempt=%s reason=%s", key[0], key[2], each["refused"])
        if not self.unsettled:
            self._refusal = None
        if gone and self.outbox is not None:
            try:
                self.outbox.remove(gone)
            except sqlite3.Error as error:
                log.warning("the outbox keeps results that are acknowledged; the next worker sends them again error=%s", error)
        self._leave_if_done()

    def _look(self) -> None:
        self._is_woken = False
        while self._inbox:
            call = self._inbox.popleft()
            if call is not None:
                call()
        self._out.set()

    async def _guarded(self, work: Callable[[ClientConnection], Coroutine[Any, Any, None]], socket: ClientConnection) -> None:
        """Ends the connection if its work fails: without it no report would be sent, and leases would still be renewed."""
        try:
            await work(socket)
        except Exception:
            log.exception("the connection has failed, connecting again")
            socket.transport.abort()

    # Reports.

    async def _send_reports(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._out.wait()
                self._out.clear()
                for message in self._compose():
                    await socket.send(message)
                # Progress is sent at most so often; what ends meanwhile goes at once.
                if any(attempt.is_dirty for attempt in self.tasks.values()):
                    asyncio.get_running_loop().call_later(0.05, self._out.set)

    def _compose(self) -> Iterable[str]:
        now = time.monotonic()
        reports: list[dict[str, Any]] = []
        while self._early:
            reports.append(self._early.popleft())
        for attempt in self.tasks.values():
            if attempt.is_dirty and (attempt.said_at is None or now - attempt.said_at >= 0.05):
                attempt.said_at = now
                reports.append(attempt.take_report())
            elif attempt.said_at is None and attempt.began_at is not None and now - attempt.began_at >= SAY_S:
                attempt.said_at = now
                reports.append({**attempt.ref, "state": "running"})
        if self._sends_again:
            self._sends_again = False
            due = [each for each in self.unsettled.values() if now - each.sent_at >= AGAIN_S]
        else:
            due = list(self._unsent)
        self._unsent.clear()
        if self.outbox is not None:
            new = [each for each in due if not each.is_kept]
            if new:
                try:
                    self.outbox.add(each.report for each in new)
                except sqlite3.Error as error:
                    # They are sent all the same. While they are not acknowledged, this is tried again.
                    log.error("results are not in the outbox: if this worker dies, they are lost error=%s", error)
                else:
                    for each in new:
                        each.is_kept = True
        for each in due:
            if self._refusal is not None:
                each.refusals += 1
                if each.refusals > MOST_REFUSALS:
                    each.refusals = 0
                    message = f"the broker refuses the report of the task: {self._refusal}"[:MOST_ERROR]
                    each.report = {**ref_of(each.report), "state": "failed", "error": {"message": message, "permanent": True}}
            each.sent_at = now
            each.first_sent_at = each.first_sent_at or now
            reports.append(each.report)
        if not reports:
            return
        if self._refusal is None:
            all_ = _encode(reports)
            if _size(all_) <= MOST_MESSAGE:
                yield f'{{"t":"reports","v":{all_}}}'
                return
        parts: list[str] = []
        size = 0
        for report in reports:
            part = _encode(report)
            if parts and (size + _size(part) > MOST_MESSAGE or self._refusal is not None):
                yield f'{{"t":"reports","v":[{",".join(parts)}]}}'
                parts, size = [], 0
            parts.append(part)
            size += _size(part) + 1
        yield f'{{"t":"reports","v":[{",".join(parts)}]}}'

    # Leases.

    def _in_hand(self) -> list[dict[str, Any]]:
        begun = [attempt.ref for attempt in self.tasks.values() if attempt.began_at is not None]
        return begun + [ref_of(each.report) for each in self.unsettled.values()]

    async def _send_watch(self, socket: ClientConnection) -> None:
        # What has not begun is forgotten: it is sent again, or is another worker's by now.
        value = {**self.hooks.watch(), "tasks": self._in_hand(), "runs": sorted(self.runs)}
        if self._draining_until is not None:
            # The names stay: a watch without any is refused.
            value["worker"] = {**value["worker"], "slots": 0}
        await socket.send(json.dumps({"t": "watch", "v": value}))

    def _watch_again(self) -> None:
        socket = self._socket
        if socket is not None and self._loop is not None:

            async def send() -> None:
                with contextlib.suppress(ConnectionClosed):
                    await self._send_watch(socket)

            self._watching = self._loop.create_task(send())

    async def _send_heartbeats(self, socket: ClientConnection) -> None:
        answers: set[asyncio.Task[None]] = set()
        try:
            while True:
                named = list(self.tasks.values())
                sent = time.monotonic()
                refs = [attempt.ref for attempt in named] + [ref_of(each.report) for each in self.unsettled.values()]
                await socket.send(json.dumps({"t": "heartbeat", "v": {"tasks": refs}}))
                pong = await socket.ping()
                answer = asyncio.create_task(self._heard(socket, pong, sent, named))
                answers.add(answer)
                answer.add_done_callback(answers.discard)
                leases = [attempt.lease_s / 3 for attempt in self.tasks.values()]
                self._beat_at = sent + min([self._heartbeat_s, *leases])
                while (left := self._beat_at - time.monotonic()) > 0:
                    self._beat.clear()
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._beat.wait(), left)
        except ConnectionClosed:
            pass
        finally:
            for answer in answers:
                answer.cancel()

    async def _heard(self, socket: ClientConnection, pong: Any, sent: float, named: list[Attempt]) -> None:
        try:
            await asyncio.wait_for(pong, self._offline_s)
        except asyncio.TimeoutError:
            log.warning("no answer from the broker for %.1f s, connecting again", self._offline_s)
            socket.transport.abort()
            return
        except ConnectionClosed:
            return
        self._proved = max(self._proved, sent)
        for attempt in named:
            if self.tasks.get(attempt.key) is not attempt or attempt.by_broker:
                continue
            attempt.lease_end = max(attempt.lease_end, sent + attempt.lease_s)
            if attempt.began_at is None and time.monotonic() < attempt.lease_end - warning_s(attempt.lease_s):
                self._begin(attempt)

    def _forget_waiting(self) -> None:
        for key in [key for key, attempt in self.tasks.items() if attempt.began_at is None]:
            del self.tasks[key]

    async def _keep_leases(self) -> None:
        while True:
            now = time.monotonic()
            shortest = 2.0
            for attempt in list(self.tasks.values()):
                if attempt.began_at is None:
                    continue
                shortest = min(shortest, attempt.lease_s)
                if now >= attempt.lease_end - margin_s(attempt.lease_s) and not attempt.stopped:
                    attempt.stopped = True
                    attempt.cancel("its lease is over")
                    attempt.stop()
                    log.warning("lease is over, task stopped run_id=%s attempt=%s", attempt.key[0], attempt.key[2])
                elif now >= attempt.lease_end - warning_s(attempt.lease_s) and not attempt.is_told:
                    attempt.cancel("its lease runs out: the broker has not answered")
            if any(now - each.sent_at >= AGAIN_S for each in self.unsettled.values()):
                self._sends_again = True
                self._out.set()
            elif any(
                attempt.said_at is None and attempt.began_at is not None and now - attempt.began_at >= SAY_S
                for attempt in self.tasks.values()
            ):
                self._out.set()
            # A peer that reads nothing holds up the next heartbeat too, and one may never say `welcome`.
            silence_s = now - self._proved
            if self._socket is not None and silence_s > self._heartbeat_s + 2 * self._offline_s:
                log.warning("no answer from the broker for %.1f s, connecting again", silence_s)
                self._socket.transport.abort()
            if self._draining_until is not None and now >= self._draining_until:
                for attempt in list(self.tasks.values()):
                    attempt.cancel("the worker ends")
                    if now >= self._draining_until + POLITE_S and attempt.began_at is not None and not attempt.stopped:
                        attempt.stopped = True
                        attempt.stop()
                if now >= self._draining_until + LAST_S:
                    log.warning("left with unfinished work tasks=%d reports=%d", len(self.tasks), len(self.unsettled))
                    await self._go()
            await asyncio.sleep(min(0.25, shortest / 40))

    # The end.

    def _drain(self, grace_s: float) -> None:
        now = time.monotonic()
        if self._draining_until is None:
            self._draining_until = now + grace_s
            self._forget_waiting()
            self._watch_again()
        else:
            self._draining_until = min(self._draining_until, now + grace_s)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._draining_until is not None and not (self.tasks or self.unsettled or self.runs):
            self._going = asyncio.ensure_future(self._go())

    async def _go(self) -> None:
        self._leave.set()
        if self._socket is not None:
            await self._socket.close()


def _size(text: str) -> int:
    """Its bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def warning_s(lease_s: float) -> float:
    """Seconds before the end of a lease at which a task is asked to end."""
    return min(lease_s / 5, 2.0)


def margin_s(lease_s: float) -> float:
    """Seconds before the end of a lease at which a task is stopped: a timer may be late."""
    return min(lease_s / 20, 0.05)

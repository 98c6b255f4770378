"""A task as its function sees it."""

from __future__ import annotations

import contextvars
import functools
import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from ._model import format_instant, parse_instant
from .errors import WebloomError

#: Characters of a progress text, bytes of a line, characters of an error's message and of its stack.
MOST_TEXT, MOST_LINE, MOST_MESSAGE, MOST_STACK = 500, 8_192, 2_000, 16_000
#: Lines that wait for the broker. Further ones are dropped; the log of a run has no room for more either.
MOST_LINES = 10_000
#: Lines of one report, and about how many characters of them; a message has at most 1 MiB.
MOST_LINES_AT_ONCE, MOST_BYTES_AT_ONCE = 500, 50_000
#: Bytes of the JSON of a result and of the data for the next run, each.
MOST_VALUE = 262_144

Key = tuple[str, int, int]


class Cancelled(WebloomError):
    """The task is to end: it was cancelled, its time is over, or its lease runs out.

    A handler need not catch it. One that does should clean up and let it go on.
    """


class PermanentError(WebloomError):
    """Raised by a handler: it would fail again, so no other attempt is made."""


class RetryLater(WebloomError):
    """Raised by a handler: this worker gives the attempt up, and the broker gives it to another worker, or to this one again.

    The text of the exception is shown as the reason.
    """


def _nothing() -> None:
    pass


class Attempt:
    """One attempt: what the handler and the connection share. It may be used from any thread."""

    __slots__ = (
        "_changed", "_event", "_lines", "_progress", "after", "ask", "began_at", "by_broker", "cancel_reason", "is_dirty",
        "is_told", "key", "lease_end", "lease_s", "lock", "order", "ref", "said_at", "stop", "stopped",
    )  # fmt: skip

    def __init__(self, order: dict[str, Any], changed: Callable[[], None]) -> None:
        self.order = order
        self.key = key_of(order)
        self.ref = ref_of(order)
        self.lease_s = order["lease"] / 1000
        self.lease_end = 0.0  # on the clock of time.monotonic; the connection moves it
        self.began_at: float | None = None
        self.said_at: float | None = None
        self.cancel_reason: str | None = None
        self.by_broker = False
        self.ask: Callable[[], None] = _nothing  # how the function is asked to end, beside `is_told`
        self.stop: Callable[[], None] = _nothing  # ends the function, if it can be ended from outside
        self.stopped = False
        self.is_told = False  # whether it is asked to end
        self._event: threading.Event | None = None  # made for the first function that waits: few do
        self.lock = threading.Lock()
        self.after: dict[str, Any] = {}  # goes with the last report
        self._changed = changed
        self._progress: dict[str, Any] = {}
        self._lines: list[dict[str, Any]] = []
        self.is_dirty = False

    def cancel(self, reason: str) -> None:
        """Asks the function to end."""
        with self.lock:
            is_first = self.cancel_reason is None
            self.cancel_reason = self.cancel_reason or reason
            self.is_told = True
            event = self._event
        if event is not None:
            event.set()
        if is_first:
            self.ask()

    def wait(self, seconds: float) -> None:
        """Waits until it is asked to end, but no longer than that."""
        with self.lock:
            if self.is_told:
                return
            event = self._event = self._event or threading.Event()
        event.wait(seconds)

    def say(self, progress: dict[str, Any]) -> None:
        with self.lock:
            self._progress.update(progress)
            self.is_dirty = True
        self._changed()

    def line(self, line: dict[str, Any]) -> None:
        with self.lock:
            if len(self._lines) >= MOST_LINES:
                return
            self._lines.append(line)
            self.is_dirty = True
        self._changed()

    def take_lines(self) -> list[dict[str, Any]]:
        """The next lines: as many as fit well into one message."""
        with self.lock:
            count = size = 0
            while count < min(len(self._lines), MOST_LINES_AT_ONCE) and size < MOST_BYTES_AT_ONCE:
                size += len(self._lines[count]["text"])
                count += 1
            taken, self._lines = self._lines[:count], self._lines[count:]
            # Progress may have been said since the last report was made.
            self.is_dirty = bool(self._lines or self._progress)
            return taken

    def take_report(self) -> dict[str, Any]:
        """What there is to say of it before its end."""
        with self.lock:
            progress, self._progress = self._progress, {}
        report = {**self.ref, "state": "running", **progress}
        lines = self.take_lines()
        if lines:
            report["logs"] = lines
        return report


def key_of(task: dict[str, Any]) -> Key:
    """What names an attempt."""
    return task["identity"], task.get("instance", 0), task["attempt"]


def ref_of(task: dict[str, Any]) -> dict[str, Any]:
    """The members that name an attempt in a message."""
    ref = {"identity": task["identity"], "attempt": task["attempt"]}
    if task.get("instance"):
        ref["instance"] = task["instance"]
    return ref


@functools.lru_cache(maxsize=1_000)
def _logger_of(task: str) -> logging.Logger:
    return logging.getLogger(f"webloom.task.{task}")


class TaskContext:
    """What a handler may ask and say about the task at hand.

    A parameter of a handler that is annotated with this class gets it; elsewhere `webloom.current_task()` returns it. It
    may be used from any thread of the handler.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        order = attempt.order
        self.run_id: str = order["identity"]
        """The id of the run."""
        self.job_id: str = order["jobId"]
        """The id of the job."""
        self.name: str = order["handler"]
        """The name of the task."""
        self.arguments: Any = order.get("arguments")
        """What the trigger or the job says, any JSON; `None` if nothing."""
        self.data: Any = order.get("data")
        """What the last run of the job left, any JSON; `None` if nothing."""
        self.attempt: int = order["attempt"]
        """Which attempt this is, from 1."""
        self.instance: int = order.get("instance", 0)
        """Which instance of the run this is, from 0."""
        self.instances: int = order.get("instances", 1)
        """How many instances the run has."""
        self.trace_id: str | None = order.get("traceId")
        """The W3C trace id of the run: 32 hexadecimal digits."""
        self._span_id: str | None = order.get("spanId")
        planned = order.get("plannedAt")
        self.planned_at: datetime | None = parse_instant(planned) if planned else None
        """The time that the run was planned for; `None` if it was triggered by hand."""
        timeout = order.get("timeout")
        self.timeout: float | None = None if timeout is None else timeout / 1000
        """Seconds that the attempt may take; then the broker cancels it. `None`: no limit."""
        self.log: logging.Logger | logging.LoggerAdapter[logging.Logger] = _logger_of(self.name)
        """A logger for the log of the run. Records of all other loggers go there as well."""

    @property
    def traceparent(self) -> str | None:
        """The value of a `traceparent` header (W3C Trace Context) for calls that the task makes: the span of this attempt."""
        if self.trace_id is None:
            return None
        if self._span_id is None:
            self._span_id = secrets.token_hex(8)
        return f"00-{self.trace_id}-{self._span_id}-01"

    @property
    def cancelled(self) -> bool:
        """Whether the task is to end."""
        return self._attempt.is_told

    @property
    def cancel_reason(self) -> str | None:
        """Why it is to end."""
        return self._attempt.cancel_reason

    @property
    def time_left(self) -> float | None:
        """Seconds until the broker cancels the attempt, at least 0; `None`: no limit."""
        if self.timeout is None or self._attempt.began_at is None:
            return self.timeout
        return max(0.0, self._attempt.began_at + self.timeout - time.monotonic())

    @property
    def deadline(self) -> datetime | None:
        """When the broker cancels the attempt, by the clock of this machine; `None`: never."""
        left = self.time_left
        return None if left is None else datetime.now(timezone.utc) + timedelta(seconds=left)

    def check(self) -> None:
        """Call it now and then in a function that takes long.

        Raises:
            Cancelled: the task is to end.
        """
        if self._attempt.is_told:
            raise Cancelled(self._attempt.cancel_reason or "cancelled")

    def sleep(self, seconds: float) -> None:
        """Sleeps, but no longer than the task may run. For handlers that are no coroutines.

        Raises:
            Cancelled: the task is to end.
        """
        self._attempt.wait(max(0.0, seconds))
        self.check()

    def progress(self, percent: float, text: str | None = None) -> None:
        """Shows how far it is: 0 to 100, and a text of at most 500 characters."""
        said: dict[str, Any] = {"progress": min(100, max(0, int(percent)))}
        if text is not None:
            said["text"] = clean(text)[:MOST_TEXT]
        self._attempt.say(said)

    def set_data(self, data: Any) -> None:
        """Leaves any JSON of at most 256 KiB for the next run of the job. It counts when this attempt has ended."""
        self._attempt.after["data"] = data

    def next_at(self, when: datetime) -> None:
        """Asks for the next run of the job at that time, once, whatever its schedule is. A time in the past means in 100 ms."""
        self._attempt.after["nextAt"] = format_instant(when)

    def next_in(self, delay: timedelta | float) -> None:
        """As `next_at`, with a distance from now: a `timedelta` or seconds."""
        self.next_at(datetime.now(timezone.utc) + (delay if isinstance(delay, timedelta) else timedelta(seconds=delay)))

    def __repr__(self) -> str:
        return f"<TaskContext {self.name} run_id={self.run_id} instance={self.instance} attempt={self.attempt}>"


_current: contextvars.ContextVar[TaskContext | None] = contextvars.ContextVar("webloom_task", default=None)


def current_task() -> TaskContext:
    """The task at hand.

    Raises:
        RuntimeError: no task is at hand here. A thread that a handler starts has none; pass the context to it.
    """
    context = _current.get()
    if context is None:
        raise RuntimeError("current_task() was called outside of a task")
    return context


Level = Literal["trace", "debug", "info", "warning", "error", "critical"]


def level_of(number: int) -> Level:
    """A level of `logging` as the log of a run has it."""
    if number >= logging.CRITICAL:
        return "critical"
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    if number >= logging.INFO:
        return "info"
    return "debug" if number >= logging.DEBUG else "trace"


def clean(text: str) -> str:
    """A text without the halves of characters that Python keeps of file names and the like: they are no Unicode."""
    return text.encode(errors="replace").decode()


def line_of(text: str, level: Level, seconds: float) -> dict[str, Any]:
    """A line for the log of a run, no longer than the broker takes."""
    text = clean(text).encode()[:MOST_LINE].decode(errors="ignore")
    at = format_instant(datetime.fromtimestamp(seconds, timezone.utc))
    return {"text": text, "level": level, "at": at}


class RunLogHandler(logging.Handler):
    """Sends what a handler logs to the log of its run."""

    def emit(self, record: logging.LogRecord) -> None:
        context = _current.get()
        sink = context._attempt.line if context is not None else _log_sink.get()
        if sink is None or record.name.startswith(("webloom.worker", "httpx", "httpcore", "websockets")):
            return
        # Each worker of a program has such a handler.
        if record.__dict__.setdefault("_webloom_handler", self) is not self:
            return
        try:
            text = self.format(record)
            for line in text.splitlines() or [""]:
                sink(line_of(line, level_of(record.levelno), record.created))
        except Exception:
            self.handleError(record)


_log_sink: contextvars.ContextVar[Callable[[dict[str, Any]], None] | None] = contextvars.ContextVar("webloom_log", default=None)

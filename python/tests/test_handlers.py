"""What can be a task, and how its arguments reach it."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from support import wait_until
from webloom import ConfigurationError, PermanentError, RetryLater, TaskContext, Worker, current_task
from webloom._handlers import Handler, Threads, run_in_loop, run_in_thread
from webloom.task import Attempt, RunLogHandler, line_of


def context(arguments: Any) -> TaskContext:
    order = {"identity": "0" * 32, "attempt": 1, "jobId": "1" * 32, "handler": "f", "lease": 1000, "arguments": arguments}
    return TaskContext(Attempt(order, lambda: None))


def called(function: Any, arguments: Any, unpack: bool = True) -> Any:
    positional, named = Handler.of("f", function, process=False, unpack=unpack).bind(context(arguments))
    return function(*positional, **named)


def test_arguments_reach_the_parameters() -> None:
    assert called(lambda: "none", None) == "none"
    assert called(lambda a=1: a, None) == 1
    assert called(lambda a: a, None) is None
    assert called(lambda a: a, [1, 2]) == [1, 2]
    assert called(lambda a, b=2: (a, b), {"a": 1}) == (1, 2)
    assert called(lambda **all: all, {"x": 1}) == {"x": 1}
    assert called(lambda a: a, {"x": 1}, unpack=False) == {"x": 1}
    assert called(lambda *, a: a, "text") == "text"

    def positional(a: int, /) -> int:
        return a

    def between(a: int, ctx: TaskContext, b: int) -> tuple[int, str, int]:
        return a, ctx.run_id, b

    def only(ctx: TaskContext) -> str:
        return ctx.name

    assert called(positional, 7) == 7
    assert called(between, {"a": 1, "b": 2}) == (1, "0" * 32, 2)
    assert called(only, None) == "f"
    assert called(only, {}) == "f"
    for function, arguments in ((only, 7), (lambda: 0, 7), (lambda a: a, {"b": 1}), (only, {"ctx": 1}), (lambda a, b: a, [1, 2])):
        with pytest.raises(PermanentError, match="do not fit"):
            called(function, arguments)


def test_what_can_be_no_task_is_refused_at_once() -> None:
    worker = Worker("http://127.0.0.1:9")

    async def coroutine() -> None: ...

    def generator() -> Any:
        yield 1

    with pytest.raises(TypeError, match="a process runs plain functions"):
        worker.task("a", process=True)(coroutine)
    with pytest.raises(TypeError, match="generator"):
        worker.task("a")(generator)
    with pytest.raises(TypeError, match="no function"):
        worker.task("a")(7)  # type: ignore[type-var]
    worker.task("a")(coroutine)
    for name in ("a", "", "x" * 101):
        with pytest.raises(ConfigurationError):
            worker.task(name)(coroutine)
    with pytest.raises(ConfigurationError, match="neither tasks nor spiders"):
        Worker("http://127.0.0.1:9").run()
    with pytest.raises(ConfigurationError):
        Worker(slots=-1)
    with pytest.raises(ConfigurationError):
        Worker(worker_id="7")
    with pytest.raises(RuntimeError, match="outside of a task"):
        current_task()


def reported(function: Any, attempt: Attempt) -> dict[str, Any]:
    reports: list[dict[str, Any]] = []
    run_in_thread(Handler.of("f", function, process=False, unpack=True), attempt, lambda _, report: reports.append(report))
    return reports[0]


def test_an_exception_that_cannot_say_what_it_is_fails_the_attempt() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("nothing to say")

    def fails() -> None:
        raise Mute

    report = reported(fails, context(None)._attempt)
    assert (report["state"], report["error"]["message"]) == ("failed", "Mute")


def test_a_task_that_is_cancelled_before_it_begins_does_not_begin() -> None:
    begun: list[bool] = []
    attempt = context(None)._attempt
    attempt.cancel("not wanted")
    report = reported(lambda: begun.append(True), attempt)
    assert (report["state"], report["error"]["message"], begun) == ("cancelled", "not wanted", [])


def test_what_a_task_returns_may_change_afterwards() -> None:
    counts = {"a": 1}
    report = reported(lambda: counts, context(None)._attempt)
    counts["b"] = 2
    assert report["result"] == {"a": 1}


def test_progress_that_is_said_while_a_report_is_made_goes_into_the_next_one() -> None:
    class Busy(Attempt):
        def take_lines(self) -> list[dict[str, Any]]:
            self.say({"progress": 2})
            return super().take_lines()

    attempt = Busy(context(None)._attempt.order, lambda: None)
    attempt.say({"progress": 1})
    assert attempt.take_report()["progress"] == 1
    assert attempt.is_dirty


def test_a_line_goes_to_the_log_once_though_the_program_has_two_workers() -> None:
    handlers = [RunLogHandler(), RunLogHandler()]
    logger = logging.getLogger("test of two workers")
    for one in handlers:
        logger.addHandler(one)

    def says() -> None:
        logger.warning("once")

    attempt = Attempt(context(None)._attempt.order, lambda: None)
    reported(says, attempt)
    assert [line["text"] for line in attempt.take_lines()] == ["once"]


def test_a_line_is_no_longer_than_the_broker_takes() -> None:
    line = line_of("é" * 5000, "info", 0.0)
    assert len(line["text"].encode()) == 8192
    assert line["at"] == "1970-01-01T00:00:00.000Z"


def test_a_short_call_that_takes_long_does_not_hold_up_the_next_ones() -> None:
    threads, done = Threads(), threading.Event()

    async def submit(calls: list[Callable[[], None]]) -> bool:
        before = sys.getswitchinterval()
        sys.setswitchinterval(10)  # all wait before the thread that is woken for the first one comes to it
        try:
            for call in calls:
                threads.submit(call, is_short=True)
        finally:
            sys.setswitchinterval(before)
        return await asyncio.to_thread(done.wait, 30)

    def wait() -> None:
        done.wait(60)

    threads.submit(lambda: None)
    wait_until(lambda: bool(threads._idle), "a thread that waits")
    assert asyncio.run(submit([wait, lambda: None, done.set]))


def test_a_call_is_short_if_the_last_one_was() -> None:
    handler = Handler.of("f", lambda seconds: time.sleep(seconds), process=False, unpack=True)

    def call(seconds: float) -> bool:
        order = {"identity": "0" * 32, "attempt": 1, "jobId": "1" * 32, "handler": "f", "lease": 1000, "arguments": seconds}
        run_in_thread(handler, Attempt(order, lambda: None), lambda _, report: reports.append(report["state"]))
        return handler.is_short

    reports: list[str] = []
    assert any(call(0.0) for _ in range(1000))  # on a busy machine one may take longer
    assert not call(0.01)
    assert set(reports) == {"success"}


def test_a_span_of_the_programs_own_tracer_belongs_to_the_attempt() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    order: dict[str, Any] = {"identity": "0" * 32, "attempt": 2, "jobId": "1" * 32, "handler": "f", "lease": 60_000}
    order |= {"traceId": "a" * 32, "spanId": "b" * 16}
    states: list[str] = []

    def finish(_: Attempt, report: dict[str, Any]) -> None:
        states.append(report["state"])

    def call(raised: Exception | None) -> None:
        with trace.get_tracer("mine").start_as_current_span("step"):
            if raised is not None:
                raise raised

    async def call_in_loop(raised: Exception | None) -> None:
        call(raised)

    for raised in [None, ValueError("no"), RetryLater("later")]:
        handler = Handler.of("f", functools.partial(call, raised), process=False, unpack=True)
        run_in_thread(handler, Attempt(order, lambda: None), finish)
        handler = Handler.of("f", functools.partial(call_in_loop, raised), process=False, unpack=True)
        asyncio.run(run_in_loop(handler, Attempt(order, lambda: None), finish))
    assert states == [state for state in ["success", "failed", "cancelled"] for _ in range(2)]
    spans = exporter.get_finished_spans()
    outer = [span for span in spans if span.name == "f"]
    assert [span.status.status_code.name for span in outer] == ["UNSET", "UNSET", "ERROR", "ERROR", "UNSET", "UNSET"]
    for inner, span in zip([span for span in spans if span.name == "step"], outer, strict=True):
        assert span.context is not None
        assert span.parent is not None
        assert inner.parent is not None
        assert (span.context.trace_id, span.parent.span_id, span.parent.is_remote) == (int("a" * 32, 16), int("b" * 16, 16), True)
        assert inner.parent.span_id == span.context.span_id
        assert span.attributes is not None
        assert span.attributes["webloom.attempt"] == 2


def test_calls_of_a_task_belong_to_its_attempt() -> None:
    order: dict[str, Any] = {"identity": "0" * 32, "attempt": 1, "jobId": "1" * 32, "handler": "f", "lease": 1000}
    assert TaskContext(Attempt(order, lambda: None)).traceparent is None
    order["traceId"] = "a" * 32
    task = TaskContext(Attempt(order, lambda: None))
    assert re.fullmatch(f"00-{'a' * 32}-[0-9a-f]{{16}}-01", task.traceparent or "")
    assert task.traceparent == task.traceparent, "one span"
    order["spanId"] = "b" * 16
    assert TaskContext(Attempt(order, lambda: None)).traceparent == f"00-{'a' * 32}-{'b' * 16}-01"

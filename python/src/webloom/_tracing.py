"""A task continues the trace of its run, if `opentelemetry-api` is installed: the program's own tracer sends the spans."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from .task import Cancelled, RetryLater, TaskContext

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    is_installed = False
else:
    is_installed = True


def span_of(task: TaskContext) -> AbstractContextManager[None]:
    """The span in which a task runs, below the span of its attempt."""
    traceparent = task.traceparent if is_installed else None
    return nullcontext() if traceparent is None else _span_of(task, traceparent)


@contextlib.contextmanager
def _span_of(task: TaskContext, traceparent: str) -> Iterator[None]:
    attributes: dict[str, str | int] = {
        "webloom.run.id": task.run_id,
        "webloom.job.id": task.job_id,
        "webloom.attempt": task.attempt,
        "webloom.instance": task.instance,
    }
    with trace.get_tracer("webloom").start_as_current_span(
        task.name,
        context=TraceContextTextMapPropagator().extract({"traceparent": traceparent}),
        kind=trace.SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except (Cancelled, asyncio.CancelledError, RetryLater):
            raise
        except BaseException as error:
            span.record_exception(error)
            span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
            raise

"""The worker of the tests. Its tasks write what they do to a journal."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from webloom import Cancelled, PermanentError, RetryLater, TaskContext, Worker, current_task

worker = Worker(
    slots=int(os.environ.get("SLOTS", "8")),
    outbox=os.environ.get("OUTBOX"),
    drain_timeout=float(os.environ.get("DRAIN", "30")),
    group=os.environ.get("GROUP"),
    token=os.environ.get("TOKEN"),
)


def note(text: str) -> None:
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@worker.task("sum")
def total(numbers: list[int]) -> int:
    logging.getLogger("shop").info("adding %d numbers", len(numbers))
    return sum(numbers)


@worker.task("greet")
async def greet(name: str, word: str = "hello") -> str:
    current_task().log.info("greeting %s", name)
    await asyncio.sleep(0)
    return f"{word} {name}"


@worker.task("count")
def count(ctx: TaskContext) -> dict[str, Any]:
    runs = (ctx.data or 0) + 1
    ctx.progress(50, "half of it")
    ctx.set_data(runs)
    return {
        "runs": runs,
        "attempt": ctx.attempt,
        "is_planned": ctx.planned_at is not None,
        "timeout": ctx.timeout,
        "has_deadline": ctx.deadline is not None,
        "trace": len(ctx.trace_id or ""),
    }


@worker.task("again")
def again(ctx: TaskContext) -> None:
    if ctx.data is None:
        ctx.set_data("once")
        ctx.next_in(timedelta(milliseconds=50))


@worker.task("square", process=True)
def square(ctx: TaskContext, n: int) -> list[int]:
    logging.warning("in a process")
    ctx.progress(10)
    return [n * n, os.getpid(), os.getppid()]


@worker.task("spin", process=True)
def spin() -> None:
    note("spin begins")
    while True:
        pass


@worker.task("process-cancel", process=True)
def process_cancel(ctx: TaskContext) -> None:
    note("process begins")
    try:
        ctx.sleep(60)
    except Cancelled:
        note("process cancelled")
        raise


@worker.task("die", process=True)
def die() -> None:
    os._exit(7)


@worker.task("fail")
def fail(how: str, ctx: TaskContext) -> None:
    note(f"{how} {ctx.attempt}")
    if how == "permanent":
        raise PermanentError("no such mailbox")
    if how == "later":
        if ctx.attempt == 1:
            raise RetryLater("the printer is busy")
        return
    if how == "exit":
        sys.exit("the task wants to leave")
    raise ValueError("a number is expected")


@worker.task("result")
def result(how: str) -> Any:
    return {"none": None, "set": {1}, "large": "x" * 300_000, "nan": float("nan"), "text": "é\u0000\ud800"}[how]


@worker.task("slow")
def slow(seconds: float, ctx: TaskContext) -> int:
    note(f"begin {ctx.attempt}")
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            ctx.sleep(0.05)
    except Cancelled as error:
        note(f"cancelled {ctx.attempt}: {error}")
        raise
    note(f"end {ctx.attempt}")
    return ctx.attempt


@worker.task("slow-async")
async def slow_async(seconds: float, ctx: TaskContext) -> int:
    note(f"begin {ctx.attempt}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note(f"cancelled {ctx.attempt}: {ctx.cancel_reason}")
        raise
    note(f"end {ctx.attempt}")
    return ctx.attempt


@worker.task("stubborn")
def stubborn() -> None:
    note("stubborn begins")
    try:
        while True:
            time.sleep(0.01)
    finally:
        note("stubborn ends")


@worker.task("blocks-the-loop")
async def blocks() -> str:
    time.sleep(3)  # noqa: ASYNC251, that is the point
    return "done"


@worker.task("until")
def until(path: str, ctx: TaskContext) -> int:
    note(f"begin {ctx.attempt}")
    while not Path(path).exists():
        time.sleep(0.01)
    note(f"end {ctx.attempt}")
    return ctx.attempt


@worker.task("chatty")
def chatty(lines: int) -> None:
    for number in range(lines):
        logging.info("line %d", number)
    logging.info("é" * 10_000)


@worker.task("square-root")
def square_root(n: float) -> float:
    return float(n**0.5)


@worker.task("half-characters")
def half_characters(how: str, ctx: TaskContext) -> str:
    """What Python makes of a file name that is no UTF-8."""
    name = b"caf\xe9".decode(errors="surrogateescape")
    logging.info("file %s", name)
    ctx.progress(1, name)
    if how == "fail":
        raise OSError(name)
    return "done"


@worker.task("too-much")
def too_much(ctx: TaskContext) -> None:
    """A report that this package would not make, and the broker refuses."""
    ctx._attempt.after["nextAt"] = "tomorrow"


@worker.task("quick")
def quick(n: int) -> int:
    note(f"quick {n}")
    return n


if __name__ == "__main__":
    worker.run()

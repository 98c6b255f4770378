"""Processes of a worker: what reaches them, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_S, wait_until
from webloom import TaskContext
from webloom._handlers import Handler
from webloom._processes import Processes
from webloom.task import Attempt


def waits(ctx: TaskContext) -> str:
    """Begins, and ends when it is asked to."""
    ctx.progress(1)
    ctx.sleep(2 * PATIENCE_S)
    return "was not asked"


def quick() -> int:
    return os.getpid()


def spins(ctx: TaskContext) -> None:
    ctx.progress(1)
    while True:
        pass


class Unreadable:
    """What the process cannot read: it stands for a function in a module that cannot be imported there."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self.error,)

    def __call__(self) -> None: ...


def _raise(error: type[BaseException]) -> None:
    raise error("not here")


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


class Run:
    """An attempt in a process, and its last report."""

    def __init__(self, processes: Processes, function: Any, number: int, cancelled: bool = False) -> None:
        order = {"identity": f"{number:032}", "attempt": 1, "jobId": "1" * 32, "handler": "f", "lease": 10_000}
        self.attempt = Attempt(order, lambda: None)
        self.reports: list[dict[str, Any]] = []
        if cancelled:
            self.attempt.cancel("not wanted")
        handler = Handler.of("f", function, process=True, unpack=True)
        self.thread = threading.Thread(target=processes.run, args=(handler, self.attempt, self.finish))
        self.thread.start()

    def finish(self, _: Attempt, report: dict[str, Any]) -> None:
        self.reports.append(report)

    def report(self) -> dict[str, Any]:
        self.thread.join(PATIENCE_S)
        assert self.reports, "it has not ended"
        return self.reports[0]


def test_a_cancellation_that_follows_at_once_is_heard(processes: Processes) -> None:
    report = Run(processes, waits, 1, cancelled=True).report()
    assert (report["state"], report["error"]["message"]) == ("cancelled", "not wanted")


def test_a_cancellation_that_comes_late_is_not_another_attempts(processes: Processes) -> None:
    first = Run(processes, quick, 1)
    process = first.report()["result"]
    second = Run(processes, waits, 2)
    wait_until(lambda: second.attempt.is_dirty, "its beginning")
    first.attempt.cancel("too late")
    first.attempt.stop()
    second.attempt.cancel("in time")
    assert second.report()["error"]["message"] == "in time"
    assert Run(processes, quick, 3).report()["result"] == process


def test_a_worker_that_ends_leaves_no_process_at_work(processes: Processes) -> None:
    run = Run(processes, spins, 1)
    wait_until(lambda: run.attempt.is_dirty, "its beginning")
    processes.close()
    assert "code -9" in run.report()["error"]["message"]


@pytest.mark.parametrize("error", [AttributeError, OSError, EOFError, SystemExit])
def test_a_function_that_its_process_cannot_import_fails_with_the_reason(
    processes: Processes, error: type[BaseException]
) -> None:
    report = Run(processes, Unreadable(error), 1).report()
    assert report["state"] == "failed"
    assert f"cannot import its function: {error.__name__}: not here" in report["error"]["message"]
    assert Run(processes, quick, 2).report()["state"] == "success"


UNGUARDED = """
from webloom import Worker

worker = Worker("http://127.0.0.1:1")


@worker.task("f", process=True)
def f() -> None: ...


if __name__ == "__main__":
    import multiprocessing

    process = multiprocessing.get_context("spawn").Process(target=f)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
worker.run()
"""


def test_the_process_of_a_task_does_not_become_a_worker(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    ended = subprocess.run([sys.executable, "unguarded.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert "the process of a task imports this program" in ended.stderr

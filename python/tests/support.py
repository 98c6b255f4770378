"""What the tests share: worker programs, and a network that can be cut."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from webloom import models
from webloom.conformance import Proxy
from webloom.testing import Broker

HERE = Path(__file__).parent
#: The worker in examples/node as JavaScript, which tests/run.sh has made of it.
NODE_WORKER = os.environ.get("WEBLOOM_NODE_WORKER")
NODE = shutil.which("node")
WITHOUT_NODE = "no `node` in PATH, or WEBLOOM_NODE_WORKER does not name the compiled examples/node/worker.ts"
T = TypeVar("T")

#: Seconds that anything may take on a busy machine.
PATIENCE_S = 60.0


def wait_until(condition: Callable[[], T | None], what: str, timeout: float = PATIENCE_S) -> T:
    """What the condition returns as soon as it is true."""
    end = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not happen within {timeout} s"
        time.sleep(0.02)


class Program:
    """A worker program of `tests/programs`. It appends what it does to the file `journal`."""

    def __init__(self, name: str, url: str, journal: Path, *arguments: str, ready: str = "connected", **environment: str) -> None:
        self.journal = journal
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WEBLOOM_")}
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(HERE / "programs" / name), *arguments],
            env={**kept, "WEBLOOM_BROKER": url, "JOURNAL": str(journal), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if ready:
            self.wait_for_line(ready)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for_line(self, text: str) -> None:
        def found() -> bool:
            is_over = self.process.poll() is not None
            if any(text in line for line in list(self.lines)):
                return True
            assert not is_over, f"the worker ended without `{text}`:\n" + "\n".join(self.lines)
            return False

        wait_until(found, f"the line `{text}`")

    @property
    def worker_id(self) -> str:
        """The id that the worker logged when it connected."""
        return next(line.partition("worker_id=")[2].split()[0] for line in self.lines if "worker_id=" in line)

    def did(self) -> list[str]:
        """The lines of the journal."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def wait_for(self, line: str, count: int = 1) -> None:
        try:
            wait_until(lambda: self.did().count(line) >= count, f"`{line}` in the journal")
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join([*self.did(), *self.lines])) from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        return self.process.wait(timeout)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join(5)
        if error is not None:
            print("\n".join(self.lines[-300:]))


@contextlib.contextmanager
def network(broker: Broker) -> Iterator[Proxy]:
    between = Proxy(broker.url)
    try:
        yield between
    finally:
        between.close()


def task_job(broker: Broker, handler: str, **task: Any) -> str:
    """Creates a job of one task; its id."""
    policies = task.pop("policies", {})
    job = broker.client.create_job(
        {
            "name": handler,
            "jobType": "task",
            "task": {"handler": handler, "noWorker": "wait", **task},
            "policies": policies,
        }
    )
    return job.id


def trigger(broker: Broker, job: str, arguments: Any = None) -> str:
    """Triggers a job; the id of the run."""
    body = {} if arguments is None else {"arguments": arguments}
    return broker.client.trigger_job(job, body).identity


def result_of(broker: Broker, run: str) -> models.RunOutput:
    """The run, once it is over."""
    return broker.client.wait_for_run(run, timeout=PATIENCE_S)


def log_of(broker: Broker, run: str) -> list[str]:
    return [line.text for line in broker.client.read_logs(run, limit=1000).items]

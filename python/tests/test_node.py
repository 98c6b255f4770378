"""The worker for Node.js in examples/node, which was written from docs/protocol.md alone."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support import NODE, NODE_WORKER, WITHOUT_NODE, log_of, result_of, task_job, trigger, wait_until
from webloom.testing import Broker

pytestmark = pytest.mark.skipif(NODE is None or NODE_WORKER is None, reason=WITHOUT_NODE)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(["--grace", "500", "--worker-offline", "2000"]) as broker:
        yield broker


class Worker:
    """The example as a process."""

    def __init__(self, *arguments: str) -> None:
        words = [str(NODE), str(NODE_WORKER), *arguments]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += map(str.rstrip, self.process.stdout)

    def __enter__(self) -> Worker:
        wait_until(lambda: self.lines or self.process.poll() is not None, "the first line")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        print("\n".join(self.lines))


def progress_of(broker: Broker, run: str) -> Any:
    return broker.client.read_run(run).progress_text


def test_tasks_end_as_they_should(broker: Broker) -> None:
    with Worker(broker.url):
        ended = result_of(broker, trigger(broker, task_job(broker, "node.sum", policies={"retry": {"limit": 3}}), [1, 2, 3.5]))
        assert (ended.state, ended.result) == ("success", 6.5)
        job = task_job(broker, "node.count")
        assert [result_of(broker, trigger(broker, job)).result for _ in range(3)] == [1, 2, 3]
        run = trigger(broker, task_job(broker, "node.walk"), {"steps": 2, "pause": 1})
        assert result_of(broker, run).state == "success"
        wrong = result_of(broker, trigger(broker, broker.client.list_jobs(name="node.sum").items[0].id, "no list"))
        assert (wrong.state, wrong.attempt) == ("failed", 1)
        assert "a list of numbers is expected" in (wrong.reason or "")
        counted = broker.client.list_runs(job_id=job).items[0].identity
        assert "run number 3" in log_of(broker, counted)


def test_many_tasks_are_each_done_once(broker: Broker) -> None:
    job = task_job(broker, "node.count")
    with Worker(broker.url), Worker(broker.url):
        runs = [run.identity or "" for run in broker.client.trigger_job_batch(job, [{}] * 60)]
        assert {result_of(broker, run).state for run in runs} == {"success"}
        assert all(broker.client.read_run(run).attempt == 1 for run in runs)


def test_a_task_that_is_stopped_ends(broker: Broker) -> None:
    job = task_job(broker, "node.walk", lease=600_000)
    with Worker(broker.url):
        # All its slots.
        runs = [trigger(broker, job, {"steps": 100_000, "pause": 20}) for _ in range(4)]
        for run in runs:
            wait_until(lambda run=run: progress_of(broker, run), "progress")  # type: ignore[misc]
            assert (broker.client.read_run(run).progress_text or "").endswith("of 100000")
            broker.client.stop_run(run)
            assert result_of(broker, run).state == "stopped"
        # They are free again.
        assert result_of(broker, trigger(broker, job, {"steps": 1, "pause": 1})).state == "success"


def test_a_lease_is_kept_and_a_killed_worker_is_replaced(broker: Broker) -> None:
    job = task_job(broker, "node.walk", lease=2_000)
    with Worker(broker.url) as first:
        # Longer than two leases.
        assert result_of(broker, trigger(broker, job, {"steps": 50, "pause": 100})).attempt == 1
        run = trigger(broker, job, {"steps": 20, "pause": 50})
        wait_until(lambda: progress_of(broker, run), "progress")
        first.process.kill()
        with Worker(broker.url):
            ended = result_of(broker, run)
            assert ended.state == "success"
            lines = broker.client.list_instances(run).items
            assert lines[0].attempt == 2


def test_results_survive_the_broker(broker: Broker) -> None:
    job = task_job(broker, "node.walk", lease=20_000)
    with Worker(broker.url) as worker:
        run = trigger(broker, job, {"steps": 10, "pause": 50})
        wait_until(lambda: progress_of(broker, run), "progress")
        broker.kill()
        wait_until(lambda: "node.walk ended: success" in worker.lines, "the end of the task")
        broker.start()
        assert result_of(broker, run).state == "success"
        assert broker.client.list_instances(run).items[0].attempt == 1


def test_a_worker_that_is_asked_to_end_finishes_its_task(broker: Broker) -> None:
    with Worker(broker.url) as worker:
        run = trigger(broker, task_job(broker, "node.walk"), {"steps": 10, "pause": 50})
        wait_until(lambda: progress_of(broker, run), "progress")
        worker.process.send_signal(signal.SIGTERM)
        assert result_of(broker, run).state == "success"
        assert worker.process.wait(30) == 0


def test_what_the_broker_does_not_want_ends(broker: Broker) -> None:
    with Worker(broker.url) as worker:
        id_ = worker.lines[0].split()[1]
        broker.client.kick_worker(id_, {"reason": "it runs wild"})
        assert worker.process.wait(30) == 1
        wait_until(lambda: any("it runs wild" in line for line in worker.lines), "the reason")
    with contextlib.ExitStack() as stack:
        guarded = stack.enter_context(Broker(["--token", "admin:0123456789abcdef"], token="0123456789abcdef"))
        wrong = stack.enter_context(Worker(guarded.url, "none of them at all"))
        assert wrong.process.wait(30) == 1
        stack.enter_context(Worker(guarded.url, "0123456789abcdef"))
        assert result_of(guarded, trigger(guarded, task_job(guarded, "node.sum"), [1])).result == 1

"""Tasks when something dies: the worker, the broker, the network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Program, network, result_of, task_job, trigger, wait_until
from webloom.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(["--grace", "500", "--worker-offline", "2000"]) as broker:
        yield broker


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_a_task_whose_worker_is_killed_is_another_workers(broker: Broker, journal: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = task_job(broker, "until", lease=2_000)
    with Program("tasks.py", broker.url, journal) as first:
        run = trigger(broker, job, str(gate))
        first.wait_for("begin 1")
        with Program("tasks.py", broker.url, journal) as second:
            first.kill()
            second.wait_for("begin 2")
            gate.touch()
            ended = result_of(broker, run)
    assert (ended.state, ended.result) == ("success", 2)
    assert first.did() == ["begin 1", "begin 2", "end 2"]


@pytest.mark.parametrize("handler", ["slow", "slow-async"])
def test_a_task_goes_on_while_the_broker_is_killed(broker: Broker, journal: Path, handler: str) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, task_job(broker, handler, lease=20_000), 1.0)
        worker.wait_for("begin 1")
        broker.kill()
        worker.wait_for("end 1")
        broker.start()
        ended = result_of(broker, run)
    assert (ended.state, ended.result) == ("success", 1)
    assert worker.did() == ["begin 1", "end 1"]


def test_no_task_is_lost_or_doubled_when_connections_break(broker: Broker, journal: Path) -> None:
    count = 200
    with network(broker) as between, Program("tasks.py", between.url, journal, SLOTS="4") as worker:
        runs = broker.client.trigger_job_batch(task_job(broker, "quick"), [{"arguments": n} for n in range(count)])
        for _ in range(4):
            seen = len(worker.did())
            wait_until(lambda seen=seen: len(worker.did()) >= min(seen + 10, count), "some tasks")  # type: ignore[misc]
            between.cut()
        for n, run in enumerate(runs):
            assert run.identity is not None
            ended = result_of(broker, run.identity)
            assert (ended.state, ended.result) == ("success", n)
    assert sorted(worker.did()) == sorted(f"quick {n}" for n in range(count))


def test_a_task_ends_by_itself_before_its_lease_when_the_broker_is_silent(broker: Broker, journal: Path) -> None:
    with network(broker) as between, Program("tasks.py", between.url, journal) as worker:
        run = trigger(broker, task_job(broker, "slow", lease=2_000), 60)
        worker.wait_for("begin 1")
        between.loses_calls.set()
        silent = time.monotonic()
        worker.wait_for("cancelled 1: its lease runs out: the broker has not answered")
        assert time.monotonic() - silent < 4
        between.loses_calls.clear()
        between.cut()
        worker.wait_for("begin 2")
        broker.client.stop_run(run)
        assert result_of(broker, run).state == "stopped"


def test_a_result_is_sent_again_until_it_is_acknowledged(broker: Broker, journal: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with network(broker) as between, Program("tasks.py", between.url, journal) as worker:
        run = trigger(broker, task_job(broker, "until", lease=30_000), str(gate))
        worker.wait_for("begin 1")
        between.loses_calls.set()  # the report is sent, and lost
        gate.touch()
        worker.wait_for("end 1")
        time.sleep(0.3)
        between.loses_calls.clear()
        between.cut()
        assert result_of(broker, run).result == 1
        # The acknowledgement is lost as well: the report comes a second time, and changes nothing.
        gate.unlink()
        second = trigger(broker, broker.client.list_jobs(name="until").items[0].id, str(gate))
        worker.wait_for("begin 1", 2)
        between.loses_answers.set()
        gate.touch()
        assert result_of(broker, second).result == 1
        between.loses_answers.clear()
        between.cut()
        before = between.connections
        wait_until(lambda: between.connections > before or worker.lines[-1].count("connected"), "a new connection")
        worker.terminate()
        assert worker.wait() == 0, "it leaves, so nothing is unacknowledged"
    assert worker.did() == ["begin 1", "end 1"] * 2


def test_a_result_in_the_outbox_survives_the_worker(broker: Broker, journal: Path, tmp_path: Path) -> None:
    gate, outbox = tmp_path / "gate", str(tmp_path / "outbox")
    with network(broker) as between, Program("tasks.py", between.url, journal, OUTBOX=outbox) as first:
        run = trigger(broker, task_job(broker, "until", lease=30_000), str(gate))
        first.wait_for("begin 1")
        between.loses_calls.set()
        gate.touch()
        first.wait_for("end 1")
        time.sleep(0.5)  # the report is on its way to the file and into the dark
        first.kill()
    with Program("tasks.py", broker.url, journal, OUTBOX=outbox) as second:
        ended = result_of(broker, run)
        assert (ended.state, ended.result, ended.attempt) == ("success", 1, 1)
        assert second.did() == ["begin 1", "end 1"], "it ran once"
        with Program("tasks.py", broker.url, journal, OUTBOX=outbox, ready="") as third:
            assert third.wait() != 0
            assert any("another worker has it" in line for line in third.lines)
        second.terminate()
        assert second.wait() == 0
    with Program("tasks.py", broker.url, journal, OUTBOX=outbox) as fourth:
        fourth.terminate()
        assert fourth.wait() == 0


@pytest.mark.parametrize("handler", ["slow", "slow-async"])
def test_a_task_that_is_stopped_hears_of_it(broker: Broker, journal: Path, handler: str) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, task_job(broker, handler), 60)
        worker.wait_for("begin 1")
        broker.client.stop_run(run)
        assert result_of(broker, run).state == "stopped"
        wait_until(lambda: any(line.startswith("cancelled 1: ") for line in worker.did()), "the cancellation")


def test_processes_can_be_stopped_whatever_they_do(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        polite = trigger(broker, task_job(broker, "process-cancel"))
        rude = trigger(broker, task_job(broker, "spin", lease=1_500))
        worker.wait_for("process begins")
        worker.wait_for("spin begins")
        for run in (polite, rude):
            broker.client.stop_run(run)
        worker.wait_for("process cancelled")
        assert result_of(broker, rude).state == "stopped"
        worker.wait_for_line("lease is over, task stopped")
        worker.terminate()
        assert worker.wait() == 0


def test_a_thread_that_does_not_listen_is_interrupted_when_its_lease_is_over(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, task_job(broker, "stubborn", lease=1_000))
        worker.wait_for("stubborn begins")
        broker.client.stop_run(run)
        worker.wait_for("stubborn ends")
        assert result_of(broker, run).state == "stopped"


def test_a_short_lease_is_kept_whenever_the_task_comes(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        job = task_job(broker, "slow", lease=500)
        # At different distances from the last heartbeat, which comes every 3 s while nothing is at work.
        for _ in range(4):
            run = result_of(broker, trigger(broker, job, 1.2))
            assert (run.state, run.result) == ("success", 1)
            time.sleep(0.35)
    assert worker.did() == ["begin 1", "end 1"] * 4


def test_a_timeout_ends_the_attempt(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, task_job(broker, "slow", policies={"timeout": 300}), 60)
        assert result_of(broker, run).state == "failed"
        wait_until(lambda: any(line.startswith("cancelled 1: ") for line in worker.did()), "the cancellation")


def test_sigterm_finishes_what_is_in_hand_and_takes_nothing_new(broker: Broker, journal: Path) -> None:
    job = task_job(broker, "slow")
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, job, 1.0)
        worker.wait_for("begin 1")
        worker.terminate()
        worker.wait_for_line("draining")
        after = trigger(broker, job, 0.0)
        assert worker.wait() == 0
        assert result_of(broker, run).state == "success"
        assert worker.did() == ["begin 1", "end 1"]
        assert broker.client.read_run(after).state not in ("success", "failed", "stopped")
        with Program("tasks.py", broker.url, journal):
            assert result_of(broker, after).state == "success"


def test_after_the_time_to_drain_tasks_are_cancelled_and_go_to_another_worker(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal, DRAIN="0.2") as worker:
        run = trigger(broker, task_job(broker, "slow"), 60)
        worker.wait_for("begin 1")
        worker.terminate()
        assert worker.wait() == 0
        assert worker.did() == ["begin 1", "cancelled 1: the worker ends"]
        with Program("tasks.py", broker.url, journal) as second:
            second.wait_for("begin 2")
            broker.client.stop_run(run)


def test_a_second_signal_stops_what_does_not_listen(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, task_job(broker, "stubborn", lease=60_000))
        worker.wait_for("stubborn begins")
        worker.terminate()
        worker.wait_for_line("draining")
        worker.terminate()
        assert worker.wait(20) == 0
        assert worker.did() == ["stubborn begins", "stubborn ends"]
        with Program("tasks.py", broker.url, journal) as second:
            second.wait_for("stubborn begins", 2)
            broker.client.stop_run(run)


def test_an_operator_drains_a_worker_and_puts_one_out(broker: Broker, journal: Path) -> None:
    with Program("tasks.py", broker.url, journal) as worker:
        broker.client.drain_worker(worker.worker_id, {"reason": "new version"})
        assert worker.wait() == 0
    with Program("tasks.py", broker.url, journal) as worker:
        run = trigger(broker, task_job(broker, "slow"), 60)
        worker.wait_for("begin 1")
        broker.client.kick_worker(worker.worker_id, {"reason": "it runs wild"})
        assert worker.wait() == 1
        assert "it runs wild" in worker.lines[-1]
        broker.client.stop_run(run)


def test_a_wrong_token_ends_the_worker_with_the_reason(journal: Path) -> None:
    with Broker(["--token", "admin:0123456789abcdef"], token="0123456789abcdef") as broker:
        with Program("tasks.py", broker.url, journal, ready="", TOKEN="none of them at all") as worker:
            assert worker.wait() == 1
            assert "WorkerRejected" in worker.lines[-1]
            assert "401" in worker.lines[-1]
        with Program("tasks.py", broker.url, journal, TOKEN="0123456789abcdef"):
            assert result_of(broker, trigger(broker, task_job(broker, "sum"), [1])).result == 1

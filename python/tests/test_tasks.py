"""Tasks, as they go when nothing is in the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Program, log_of, result_of, task_job, trigger, wait_until
from webloom.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with Program("tasks.py", broker.url, tmp_path_factory.mktemp("worker") / "journal") as worker:
        yield worker


def test_a_function_is_called_and_its_result_and_its_log_are_kept(broker: Broker, worker: Program) -> None:
    run = result_of(broker, trigger(broker, task_job(broker, "sum"), [1, 2, 3]))
    assert (run.state, run.result) == ("success", 6)
    lines = broker.client.read_logs(run.identity).items
    mine = next(line for line in lines if line.text == "adding 3 numbers")
    assert mine.level == "info"


def test_an_object_gives_keyword_arguments_to_a_coroutine_function(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "greet")
    assert result_of(broker, trigger(broker, job, {"name": "Ada"})).result == "hello Ada"
    run = result_of(broker, trigger(broker, job, {"name": "Ada", "word": "bye"}))
    assert run.result == "bye Ada"
    assert "greeting Ada" in log_of(broker, run.identity)


def test_arguments_that_do_not_fit_fail_for_good_and_say_why(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "chatty", policies={"retry": {"limit": 3, "delay": 1}})
    run = result_of(broker, trigger(broker, job, {"line": 3}))
    assert (run.state, run.attempt) == ("failed", 1)
    assert run.reason is not None
    assert "missing a required argument: 'lines'" in run.reason
    assert not any("Traceback" in line for line in log_of(broker, run.identity))


def test_the_context_has_data_progress_and_the_deadline(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "count", policies={"timeout": 30_000})
    first = result_of(broker, trigger(broker, job))
    assert first.result == {"runs": 1, "attempt": 1, "is_planned": False, "timeout": 30.0, "has_deadline": True, "trace": 32}
    assert result_of(broker, trigger(broker, job)).result["runs"] == 2
    assert broker.client.read_job_data(job).data == 2


def test_a_task_asks_for_its_next_run(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "again")
    trigger(broker, job)
    wait_until(lambda: len(broker.client.list_runs(job_id=job, state="success").items) == 2, "the run that was asked for")


def test_a_process_carries_out_a_task(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "square")
    run = result_of(broker, trigger(broker, job, {"n": 12}))
    square, pid, parent = run.result
    assert (square, parent) == (144, worker.process.pid)
    assert "in a process" in log_of(broker, run.identity)
    assert result_of(broker, trigger(broker, job, {"n": 2})).result[1] == pid, "the process is kept"


def test_a_process_that_dies_fails_its_task_and_no_other(broker: Broker, worker: Program) -> None:
    run = result_of(broker, trigger(broker, task_job(broker, "die")))
    assert run.state == "failed"
    assert "code 7" in (run.reason or "")
    assert worker.process.poll() is None


@pytest.mark.parametrize(
    ("how", "state", "attempts", "reason"),
    [
        ("permanent", "failed", 1, "no such mailbox"),
        ("value", "failed", 2, "ValueError: a number is expected"),
        ("exit", "failed", 2, "the task wants to leave"),
        ("later", "success", 2, None),
    ],
)
def test_an_exception_fails_the_attempt(
    broker: Broker, worker: Program, how: str, state: str, attempts: int, reason: str | None
) -> None:
    jobs = broker.client.list_jobs(name="fail").items
    job = jobs[0].id if jobs else task_job(broker, "fail", policies={"retry": {"limit": 1, "delay": 1}})
    run = result_of(broker, trigger(broker, job, {"how": how}))
    assert run.state == state
    assert [line for line in worker.did() if line.startswith(how)] == [f"{how} {attempt + 1}" for attempt in range(attempts)]
    if reason is not None:
        assert reason in (run.reason or "")


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("none", "success", ""),
        ("set", "failed", "is not JSON"),
        ("large", "failed", "at most 262144"),
        ("nan", "failed", "is not JSON"),
        ("text", "failed", "is not JSON"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_with_the_reason(
    broker: Broker, worker: Program, how: str, state: str, reason: str
) -> None:
    jobs = broker.client.list_jobs(name="result").items
    run = result_of(broker, trigger(broker, jobs[0].id if jobs else task_job(broker, "result"), how))
    assert run.state == state
    assert reason in (run.reason or "")


def test_halves_of_characters_do_no_harm(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "half-characters")
    assert result_of(broker, trigger(broker, job, "return")).result == "done"
    run = result_of(broker, trigger(broker, job, "fail"))
    assert (run.state, run.reason) == ("failed", "OSError: caf?")
    assert "file caf?" in log_of(broker, run.identity)


def test_a_report_that_the_broker_refuses_holds_up_no_other(broker: Broker, worker: Program) -> None:
    wrong = trigger(broker, task_job(broker, "too-much", lease=60_000))
    right = trigger(broker, task_job(broker, "square-root"), {"n": 9})
    assert result_of(broker, right).state == "success"
    run = result_of(broker, wrong)
    assert run.state == "failed"
    assert "the broker refused the worker's last report" in (run.reason or "")


def test_many_lines_arrive_in_their_order(broker: Broker, worker: Program) -> None:
    jobs = broker.client.list_jobs(name="chatty").items
    run = result_of(broker, trigger(broker, jobs[0].id if jobs else task_job(broker, "chatty"), 2500))
    lines: list[str] = []
    after: str | None = None
    while True:
        page = broker.client.read_logs(run.identity, limit=1000, **({} if after is None else {"after": after}))  # type: ignore[arg-type]
        lines += [line.text for line in page.items]
        after = str(page.next)
        if not page.more:
            break
    assert [line for line in lines if line.startswith("line ")] == [f"line {number}" for number in range(2500)]
    assert sum(line.startswith("é") for line in lines) == 1


def test_a_coroutine_that_blocks_the_loop_keeps_its_lease(broker: Broker, worker: Program) -> None:
    run = result_of(broker, trigger(broker, task_job(broker, "blocks-the-loop", lease=1_000)))
    assert (run.state, run.result) == ("success", "done")


def test_each_of_many_tasks_is_carried_out_once(broker: Broker, worker: Program) -> None:
    job = task_job(broker, "quick")
    runs = broker.client.trigger_job_batch(job, [{"arguments": n} for n in range(300)])
    for n, run in enumerate(runs):
        assert run.identity is not None
        assert result_of(broker, run.identity).result == n
    did = [line for line in worker.did() if line.startswith("quick")]
    assert sorted(did) == sorted(f"quick {n}" for n in range(300))


def test_the_example_of_a_task_worker_works(broker: Broker, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "python" / "tasks.py"
    with Program(str(example), broker.url, tmp_path / "journal"):
        job = broker.client.create_job({"name": "words", "jobType": "task", "task": {"handler": "text.words"}}).id
        run = result_of(broker, trigger(broker, job, {"text": "the cat and the dog"}))
        assert json.dumps(run.result, sort_keys=True) == '{"and": 1, "cat": 1, "dog": 1, "the": 2}'

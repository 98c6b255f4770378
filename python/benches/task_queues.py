"""Tasks of Python workers: tasks a second, tasks per CPU second of the worker, and the time from the trigger to the start, of
Webloom, Celery, Dramatiq, RQ and arq in one run.

    python task_queues.py --tasks 5000 --single 200 --rounds 3

The row `rust` is a worker of Webloom's Rust SDK, the example `queue_row`; `WEBLOOM_QUEUE_ROW` is the path of its program.

Each has one worker process with 8 threads (arq: 8 coroutines; RQ: its SimpleWorker, one at a time, which does not fork), and its
documented defaults else. The others keep their queue in a `redis-server` with an append-only file that is synchronised once a
second; Webloom answers a trigger after its commit. Celery stores no results (`ignore_result`) and Dramatiq has none; RQ, arq and
Webloom store them. A system that is not installed is left out.

The tasks are put in while the worker waits, so throughput has both sides in it. Processor time is that of the worker process
alone, until a second after the last task, so that what it still has to report is counted. Singles are sent one after the other,
each when the one before has started.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis_server import Redis
from webloom.testing import Broker

REDIS = os.environ.get("REDIS", "")
RUST = os.environ.get("WEBLOOM_QUEUE_ROW", "")
JOURNAL = Path(os.environ.get("JOURNAL", os.devnull))
_lock = threading.Lock()
_seen = {"count": 0}


def work(number: int, of: int) -> None:
    """What each task does. After the last one it writes the figures; a single (`of` is 0) writes when it started."""
    now = time.time()
    if of == 0:
        with JOURNAL.open("a") as file:
            file.write(f"single {number} {now}\n")
        return
    with _lock:
        _seen["count"] += 1
        if _seen["count"] < of:
            return
        _seen["count"] = 0
    with JOURNAL.open("a") as file:
        file.write(f"all {now}\n")


# Each system: how its worker runs, and functions that put one and many tasks in.


def celery_app() -> Any:
    from celery import Celery

    app = Celery("bench", broker=REDIS)
    app.conf.task_ignore_result = True
    app.task(work, name="work")
    return app


def celery_worker() -> None:
    celery_app().worker_main(
        ["worker", "--pool=threads", "--concurrency=8", "--loglevel=ERROR", "--without-gossip", "--without-mingle"]
    )


def celery_client() -> tuple[Callable[..., Any], Callable[[int], Any]]:
    task = celery_app().tasks["work"]
    return (lambda number: task.delay(number, 0)), (lambda count: [task.delay(n, count) for n in range(count)])


def dramatiq_actor() -> Any:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    dramatiq.set_broker(RedisBroker(url=REDIS))
    return dramatiq.actor(work)


def dramatiq_worker() -> None:
    import dramatiq

    dramatiq_actor()
    worker = dramatiq.Worker(dramatiq.get_broker(), worker_threads=8)
    worker.start()
    threading.Event().wait()


def dramatiq_client() -> tuple[Callable[..., Any], Callable[[int], Any]]:
    actor = dramatiq_actor()
    return (lambda number: actor.send(number, 0)), (lambda count: [actor.send(n, count) for n in range(count)])


def rq_queue() -> Any:
    from redis import Redis as Connection
    from rq import Queue

    return Queue(connection=Connection.from_url(REDIS))


def rq_worker() -> None:
    from rq import SimpleWorker

    queue = rq_queue()
    SimpleWorker([queue], connection=queue.connection).work(logging_level="ERROR")


def rq_client() -> tuple[Callable[..., Any], Callable[[int], Any]]:
    queue = rq_queue()
    return (lambda number: queue.enqueue("task_queues.work", number, 0)), (
        lambda count: [queue.enqueue("task_queues.work", n, count) for n in range(count)]
    )


def arq_worker() -> None:
    from arq import func, run_worker
    from arq.connections import RedisSettings

    async def task(_: Any, number: int, of: int) -> None:
        work(number, of)

    class Settings:
        functions = (func(task, name="work"),)
        redis_settings = RedisSettings.from_dsn(REDIS)
        max_jobs = 8

    run_worker(Settings)


def arq_client() -> tuple[Callable[..., Any], Callable[[int], Any]]:
    import asyncio

    from arq import create_pool
    from arq.connections import RedisSettings

    loop = asyncio.new_event_loop()
    pool = loop.run_until_complete(create_pool(RedisSettings.from_dsn(REDIS)))

    async def many(count: int) -> None:
        for n in range(count):
            await pool.enqueue_job("work", n, count)

    return (lambda number: loop.run_until_complete(pool.enqueue_job("work", number, 0))), (
        lambda count: loop.run_until_complete(many(count))
    )


def webloom_worker() -> None:
    from webloom import Worker

    worker = Worker(slots=8)
    worker.task("work")(work)
    worker.run()


def webloom_client() -> tuple[Callable[..., Any], Callable[[int], Any]]:
    from webloom import Client

    client = Client()
    name = "work"
    found = [job for job in client.list_jobs(name=name).items if job.name == name]
    task = {"handler": name, "noWorker": "wait"}
    job = found[0] if found else client.create_job({"name": name, "jobType": "task", "task": task})

    def single(number: int) -> None:
        client.trigger_job(job.id, {"arguments": {"number": number, "of": 0}})

    def many(count: int) -> None:
        bodies = [{"arguments": {"number": n, "of": count}} for n in range(count)]
        for at in range(0, count, 1000):
            client.trigger_job_batch(job.id, bodies[at : at + 1000])

    return single, many


def rust_worker() -> None:
    os.execv(RUST, [RUST])


rust_client = webloom_client

SYSTEMS = ["webloom", "rust", "celery", "dramatiq", "rq", "arq"]


def measure(system: str, environment: dict[str, str], tasks: int, single: int) -> dict[str, float]:
    """One worker process and one client process."""
    folder = Path(tempfile.mkdtemp())
    environment = {**environment, "JOURNAL": str(folder / "journal")}
    command = [sys.executable, __file__, system]
    worker = subprocess.Popen([*command, "worker"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        words = [*command, "client", str(tasks), str(single), str(worker.pid)]
        made = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    finally:
        worker.kill()
        worker.wait()
        shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def client_process(system: str, tasks: int, single: int, worker: int) -> None:
    """Puts tasks in and waits for the journal; the figures as JSON."""
    one, many = globals()[f"{system}_client"]()

    def lines(begin: str, count: int) -> list[str]:
        end = time.monotonic() + 300
        while True:
            found = [line for line in JOURNAL.read_text().splitlines() if line.startswith(begin)] if JOURNAL.exists() else []
            if len(found) >= count:
                return found
            assert time.monotonic() < end, f"{system} has not done its tasks"
            time.sleep(0.001 if begin == "single" else 0.02)

    one(-1)  # the worker is there
    lines("single", 1)
    delays = []
    for number in range(single):
        sent = time.time()
        one(number)
        began = float(lines("single", number + 2)[-1].split()[2])
        delays.append((began - sent) * 1000)
    cpu, walls = [], []
    for round_ in range(2):  # the first one warms up
        before, began = cpu_of(worker), time.time()
        many(tasks)
        ended = float(lines("all", round_ + 1)[-1].split()[1])
        time.sleep(1)
        cpu.append(tasks / (cpu_of(worker) - before))
        walls.append(tasks / (ended - began))
    delays.sort()
    print(
        json.dumps({"cpu": cpu[-1], "wall": walls[-1], "p50": statistics.median(delays), "p99": delays[int(len(delays) * 0.99)]})
    )


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] in SYSTEMS:
        if sys.argv[2] == "worker":
            globals()[f"{sys.argv[1]}_worker"]()
            return
        return client_process(sys.argv[1], *map(int, sys.argv[3:6]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--single", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    options = parser.parse_args()
    has_redis = shutil.which("redis-server") is not None
    is_there = {"webloom": True, "rust": bool(RUST)}
    there = [s for s in options.systems if is_there.get(s, has_redis and importlib.util.find_spec(s) is not None)]
    rows: dict[str, list[dict[str, float]]] = {system: [] for system in there}
    for _ in range(options.rounds):
        for system in there:
            with Broker() as broker, Redis(system not in ("webloom", "rust")) as redis:
                path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
                environment = {**os.environ, "WEBLOOM_BROKER": broker.url, "REDIS": redis.url, "PYTHONPATH": path}
                rows[system].append(measure(system, environment, options.tasks, options.single))
            print(system, {key: round(value, 2) for key, value in rows[system][-1].items()}, flush=True)
    print(f"\n{'':9} {'tasks/CPU s':>12} {'tasks/s':>9} {'start p50 ms':>13} {'p99 ms':>8}")
    for system in there:
        middle = {key: statistics.median(row[key] for row in rows[system]) for key in rows[system][0]}
        print(f"{system:9} {middle['cpu']:12.0f} {middle['wall']:9.0f} {middle['p50']:13.1f} {middle['p99']:8.1f}")


if __name__ == "__main__":
    main()

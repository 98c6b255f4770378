"""What a million jobs cost PostgreSQL in a queue of rows that are claimed with FOR UPDATE SKIP LOCKED.

    python skip_locked.py postgres://user@127.0.0.1:5432/postgres [--jobs 200000] [--batch 1 100] [--rounds 3]

River, Oban and pg-boss have such queues. The server must be on this machine, and should do nothing else. A job is inserted,
claimed and completed, each of them in batches. Nothing is executed. It prints jobs a second, and for a million jobs the CPU
seconds of the server's processes and the megabytes of WAL. The CPU of the clients is not counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import psycopg

TABLE = """
create table skip_locked_job (
    id bigserial primary key,
    state text not null default 'available',
    priority smallint not null default 1,
    queue text not null default 'default',
    scheduled_at timestamptz not null default now(),
    attempt smallint not null default 0,
    attempted_at timestamptz,
    finalized_at timestamptz,
    args jsonb not null
)
"""
INDEX = "create index on skip_locked_job (state, queue, priority, scheduled_at, id)"
INSERT = "insert into skip_locked_job (args) select unnest(%s::jsonb[])"
CLAIM = """
with claimed as (
    select id from skip_locked_job where state = 'available' and queue = 'default' and scheduled_at <= now()
    order by priority, scheduled_at, id limit %s for update skip locked
)
update skip_locked_job as job set state = 'running', attempt = attempt + 1, attempted_at = now()
from claimed where job.id = claimed.id returning job.id, job.args
"""
COMPLETE = "update skip_locked_job set state = 'completed', finalized_at = now() where id = any(%s) and state = 'running'"
WAL = "select pg_current_wal_lsn() - '0/0'::pg_lsn"
CLIENTS = 4


def insert(url: str, jobs: int, batch: int, first: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for start in range(first, first + jobs, batch):
            args = [
                json.dumps({"url": f"https://site{n % 100}.example/{n}/page?a=1"})
                for n in range(start, min(start + batch, first + jobs))
            ]
            connection.execute(INSERT, [args])


def work(url: str, jobs: int, batch: int, done: Synchronized[int]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while done.value < jobs:
            rows = connection.execute(CLAIM, [batch]).fetchall()
            if not rows:
                time.sleep(0.002)
                continue
            connection.execute(COMPLETE, [[row[0] for row in rows]])
            with done.get_lock():
                done.value += len(rows)


def children(of: int) -> list[int]:
    found = [of]
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(stat(int(name))[1]) == of:
                found.append(int(name))
        except OSError:
            pass
    return found


def stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def cpu(postmaster: int) -> float:
    """Of the server's processes that live, and of those that have ended."""
    ticks = 0
    for process in children(postmaster):
        fields = stat(process)
        ticks += int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if process == postmaster else 0)
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 100])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with psycopg.connect(options.url, autocommit=True) as control:

        def ask(statement: str, *values: object) -> int:
            row = control.execute(statement.encode(), values).fetchone()
            assert row is not None
            return int(row[0])

        postmaster = int(stat(ask("select pg_backend_pid()"))[1])
        for batch in options.batch * options.rounds:
            jobs = options.jobs if batch > 1 else options.jobs // 10
            control.execute("drop table if exists skip_locked_job")
            control.execute(TABLE)
            control.execute(INDEX)
            control.execute("checkpoint")
            done = multiprocessing.Value("l", 0)
            wal, used, start = ask(WAL), cpu(postmaster), time.monotonic()
            share = jobs // CLIENTS
            processes = [
                multiprocessing.Process(target=insert, args=(options.url, share, batch, n * share)) for n in range(CLIENTS)
            ]
            processes += [multiprocessing.Process(target=work, args=(options.url, jobs, batch, done)) for _ in range(CLIENTS)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            seconds, used = time.monotonic() - start, cpu(postmaster) - used
            wal = ask(WAL) - wal
            figures = {
                "batch": batch,
                "jobs_per_second": round(jobs / seconds),
                "server_cpu_s_per_million": round(used * 1_000_000 / jobs, 1),
                "wal_mb_per_million": round(wal / jobs),
            }
            print(json.dumps(figures), flush=True)
        control.execute("drop table skip_locked_job")


if __name__ == "__main__":
    main()

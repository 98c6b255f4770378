"""How long a fleet of two brokers stands still when the leader is killed.

    python fail_over.py --kills 50
    python fail_over.py --kills 50 --database postgres://user@host:port/name

WEBLOOM_BINARY names the program `webloom`. The leader is killed with `kill -9`. From then on the script asks the other broker
every few milliseconds: as a client for the newest run of jobs that are due every 50 ms, and as a node for a block. When it has
both, the killed broker is started again and stands by, and its turn is next.

At the end `webloom verify-history` checks that every scheduled time has one verdict.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webloom.testing import Program, find_binary

#: Jobs with an interval of one second, spread over it.
JOBS = 20
#: Seconds between two questions, and those that one fail-over may take.
PERIOD_S, LONGEST_S = 0.003, 60.0


class Side:
    """One of the brokers, and a connection to it."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.listen = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Starts it at its address, or at a free port the first time."""
        self.program = Program(["broker", "--listen", self.listen, *self.arguments], "listening on")
        self.listen = urlsplit(self.program.ready_line.split()[-1]).netloc
        self._connection: http.client.HTTPConnection | None = None

    def try_call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A call; the status 0 if there was no answer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.listen, timeout=10)
        try:
            text = None if body is None else json.dumps(body)
            self._connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else None
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            return 0, None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A call that must succeed."""
        status, answer = self.try_call(method, path, body)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer


class Crawl:
    """A run with blocks that are ready, its worker, and a node that takes one block after the other."""

    def __init__(self, leader: Side, requests: int) -> None:
        self.worker, self.node = uuid.uuid4().hex, uuid.uuid4().hex
        leader.call("POST", "/api/v1/workers", {"workerId": self.worker, "classNames": ["bench.Crawl"]})
        properties = {"FullClassName": "bench.Crawl", "BlockSize": "1", "Robots": "ignore"}
        job = leader.call("POST", "/api/v1/jobs", {"name": "crawl", "jobType": "block", "properties": properties})
        self.run = leader.call("POST", f"/api/v1/jobs/{job['id']}/trigger", {})["identity"]
        urls = [{"url": f"http://127.0.0.1:9/{n}"} for n in range(requests)]
        leader.call("POST", f"/requestqueue/{self.run}", urls)
        while self.next_block(leader) is None:
            time.sleep(0.05)

    def next_block(self, side: Side) -> str | None:
        """Asks for a block, as a node that holds none."""
        beat = {
            "nodeId": self.node,
            "name": "bench",
            "nodeType": "bench",
            "operatingSystem": "linux",
            "processCount": 0,
            "holding": [],
        }
        status, order = side.try_call("POST", "/node/heartbeat", beat)
        if status != 200:
            return None
        names = ("blockId", "identity", "epoch", "attempt")
        failed = [{"requestId": r["requestId"], "error": {"kind": "other", "message": "bench"}} for r in order["requests"]]
        side.try_call("POST", "/node/block", {**{n: order[n] for n in names}, "nodeId": self.node, "results": failed})
        return str(order["blockId"])

    def stay(self, side: Side) -> None:
        """A sign of life of the worker."""
        side.try_call("GET", f"/api/v1/workers/{self.worker}/messages?wait=0")


def newest_fire(side: Side) -> str:
    """When the newest run of the schedules was made."""
    status, runs = side.try_call("GET", "/api/v1/runs?limit=1&kind=task")
    return str(runs["items"][0]["creationTime"]) if status == 200 and runs["items"] else ""


def wait_until_standby(side: Side) -> None:
    """Waits until it reads, and leaves the lead to the other."""
    end = time.monotonic() + LONGEST_S
    while side.try_call("GET", "/api/v1/jobs?limit=1")[0] != 200:
        if time.monotonic() > end:
            raise RuntimeError("a broker that was started again does not answer")
        time.sleep(0.02)


def fail_over(leader: Side, standby: Side, crawl: Crawl) -> tuple[float, float]:
    """Seconds from the kill to the next fire and to the next block."""
    before = newest_fire(standby)
    leader.program.kill()
    killed = time.monotonic()
    # A run that the leader had begun to make before the kill does not count.
    at = time.time()
    mark = max(before, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z")
    fire = block = 0.0
    while not (fire and block):
        if time.monotonic() - killed > LONGEST_S:
            raise RuntimeError(f"the standby did not take over: fire after {fire} s, block after {block} s")
        if not fire and newest_fire(standby) > mark:
            fire = time.monotonic() - killed
        if not block and crawl.next_block(standby):
            block = time.monotonic() - killed
        time.sleep(PERIOD_S)
    return fire, block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--database", help="a PostgreSQL database that is empty; a file of SQLite unless set")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="webloom-") as folder:
        arguments = ["--database", options.database or str(Path(folder) / "webloom.db")]
        leader = Side(arguments)
        while leader.try_call("GET", "/readyz")[0] != 200:
            time.sleep(0.02)
        standby = Side(arguments)
        wait_until_standby(standby)
        for n in range(JOBS):
            job = {"name": f"tick {n}", "jobType": "task", "task": {"handler": "nobody", "noWorker": "fail"}}
            leader.call("POST", "/api/v1/jobs", {**job, "interval": 1000})
            time.sleep(1 / JOBS)
        crawl = Crawl(leader, options.kills * 20 + 100)
        fires, blocks = [], []
        for n in range(options.kills):
            fire, block = fail_over(leader, standby, crawl)
            crawl.stay(standby)
            fires.append(fire)
            blocks.append(block)
            print(f"{n + 1:3}: next fire {fire * 1000:6.0f} ms, next block {block * 1000:6.0f} ms", flush=True)
            leader.start()
            wait_until_standby(leader)
            leader, standby = standby, leader
        for name, values in (("fire", fires), ("block", blocks)):
            p50, worst = statistics.median(values) * 1000, max(values) * 1000
            print(f"next {name}: p50 {p50:.0f} ms, worst {worst:.0f} ms, {len(values)} kills")
        for side in (standby, leader):
            side.program.stop()
        checked = subprocess.run([find_binary(), "verify-history", *arguments], capture_output=True, text=True)
        print(checked.stdout.strip() or checked.stderr.strip())
        raise SystemExit(checked.returncode)


if __name__ == "__main__":
    main()

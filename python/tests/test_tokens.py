"""The token of a worker that is connected is withdrawn, and comes back."""

from __future__ import annotations

import http.server
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Program, result_of, task_job, trigger, wait_until
from webloom.testing import Broker

ADMIN, WORKER, AGENT = "admin:0123456789abcdef", "worker:the-token-of-workers", "agent:the-token-of-agents"


class Tokens:
    """A broker whose tokens change while it runs."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokens"
        self._write(ADMIN, WORKER, AGENT)
        self.broker = Broker(["--token-file", str(self.file), "--grace", "500"], token=ADMIN.partition(":")[2])

    def _write(self, *tokens: str) -> None:
        self.file.write_text("".join(f"{token}\n" for token in tokens))
        self.file.chmod(0o600)

    def withdraw(self) -> None:
        self._reload(ADMIN, AGENT)

    def restore(self) -> None:
        self._reload(ADMIN, WORKER, AGENT)

    def _reload(self, *tokens: str) -> None:
        self._write(*tokens)
        self.broker.program.process.send_signal(signal.SIGHUP)


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    tokens = Tokens(tmp_path)
    with tokens.broker:
        yield tokens


def test_a_task_outlives_the_token_of_its_worker(tokens: Tokens, tmp_path: Path) -> None:
    broker, gate = tokens.broker, tmp_path / "gate"
    with Program("tasks.py", broker.url, tmp_path / "journal", TOKEN=WORKER) as worker:
        run = trigger(broker, task_job(broker, "until", lease=60_000), str(gate))
        worker.wait_for("begin 1")
        tokens.withdraw()
        worker.wait_for_line("status=401")
        # It ends while nobody takes its result.
        gate.touch()
        worker.wait_for("end 1")
        assert worker.process.poll() is None
        tokens.restore()
        ended = result_of(broker, run)
        assert (ended.state, ended.result) == ("success", 1)
        assert worker.did() == ["begin 1", "end 1"]
        # It is a worker as before.
        assert result_of(broker, trigger(broker, task_job(broker, "sum"), [1, 2])).result == 3


class _Handler(http.server.BaseHTTPRequestHandler):
    """A chain of pages. One of them is not answered until the test says so."""

    reached, may_answer = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        number = int(self.path.strip("/") or 0)
        if number == 5:
            self.reached.set()
            self.may_answer.wait(60)
        body = f'<a href="/{number + 1}">next</a>'.encode() if number < 10 else b""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_crawl_outlives_the_token_of_its_worker(tokens: Tokens, tmp_path: Path) -> None:
    broker = tokens.broker
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        broker.agent("--token", AGENT.partition(":")[2])
        with Program("spider.py", broker.url, tmp_path / "journal", WEBLOOM_TOKEN=WORKER) as worker:
            properties = {"FullClassName": "site", "Arguments": f"http://127.0.0.1:{site.server_port}/0"}
            job = broker.client.create_job({"name": "chain", "jobType": "block", "properties": properties})
            run = broker.client.trigger_job(job.id).identity
            wait_until(_Handler.reached.is_set, "the page that waits")
            tokens.withdraw()
            worker.wait_for_line("status=401")
            _Handler.may_answer.set()
            wait_until(lambda: (broker.client.read_run(run).left or 0) == 0, "the result of the page")
            tokens.restore()
            worker.wait_for("closed success")
        pages = [json.loads(line)["path"] for line in worker.did() if line.startswith("{")]
        assert pages == [str(number) for number in range(11)]
        assert result_of(broker, run).state == "success"
        assert not any("crawl failed" in line for line in worker.lines)
    finally:
        _Handler.may_answer.set()
        site.shutdown()
        site.server_close()

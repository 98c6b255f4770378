"""Spiders against a real broker, a real agent and a small site."""

from __future__ import annotations

import asyncio
import collections
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import Program, log_of, network, result_of, wait_until
from webloom import ApiError, Client, Run, Spider
from webloom._crawl import Crawl
from webloom.testing import Broker

PAGES = 60


class _Handler(http.server.BaseHTTPRequestHandler):
    """Page n links to pages 2n+1 and 2n+2, so a crawl has six levels."""

    def do_GET(self) -> None:
        name = self.path.strip("/")
        kind = "text/html; charset=utf-8"
        if name == "gone":
            self.send_error(404)
            return
        if name in ("moved", "moved-too"):
            self.send_response(302)
            self.send_header("Location", "/latin")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if name == "latin":
            body, kind = "<p>déjà vu".encode("latin-1"), "text/html; charset=ISO-8859-1"
        elif name == "after":
            body = "<meta charset=shift_jis>テスト".encode("shift_jis")
            kind = "text/html"
        else:
            number = int(name or 0) if name.isdigit() or not name else 0
            links = [n for n in (2 * number + 1, 2 * number + 2, 0) if n < PAGES]
            body = "".join(f'<a href="/{n}">{n}</a>' for n in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(["--grace", "500", "--worker-offline", "2000"]) as broker:
        broker.agent("--retry-download", "0")
        yield broker


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def crawl(client: Client, name: str, class_name: str, arguments: str, **properties: str) -> str:
    """Creates a block job and triggers it; the id of the run."""
    job = client.create_job(
        {
            "name": name,
            "jobType": "block",
            "properties": {
                "FullClassName": class_name,
                "Arguments": arguments,
                "NoWorker": "wait",
                "ThreadNum": "4",
                **properties,
            },
        }
    )
    return client.trigger_job(job.id).identity


def items(worker: Program) -> list[dict[str, object]]:
    return [json.loads(line) for line in worker.did() if line.startswith("{")]


def test_a_crawl_reads_each_page_once_and_ends(broker: Broker, site: str, journal: Path) -> None:
    with Program("spider.py", broker.url, journal) as worker:
        run = result_of(broker, crawl(broker.client, "whole", "site", site, BlockSize="7"))
        worker.wait_for("closed success")
        worker.terminate()
        assert worker.wait() == 0
    assert (run.state, run.success, run.error) == ("success", PAGES + 1, 0)  # "/" and "/0" are two addresses
    paths = collections.Counter(str(item["path"]) for item in items(worker))
    assert paths == dict.fromkeys(["", *map(str, range(PAGES))], 1)
    assert {item["path"]: item["depth"] for item in items(worker)}["59"] == 5


@pytest.mark.parametrize(("setting", "paths"), [({}, ["latin"]), ({"MaxRedirects": "0"}, ["moved", "moved-too"])])
def test_a_redirect_is_parsed_only_if_the_run_does_not_request_its_target(
    broker: Broker, site: str, journal: Path, setting: dict[str, str], paths: list[str]
) -> None:
    with Program("spider.py", broker.url, journal) as worker:
        starts = f"{site}moved {site}moved-too"
        run = result_of(broker, crawl(broker.client, f"moved{len(setting)}", "site", starts, **setting))
        worker.wait_for("closed success")
    assert (run.state, run.success) == ("success", 3 if not setting else 2)
    assert sorted(str(item["path"]) for item in items(worker)) == paths


def test_a_crawl_with_coroutines_callbacks_and_meta(broker: Broker, site: str, journal: Path) -> None:
    with Program("spider.py", broker.url, journal) as worker:
        run = result_of(broker, crawl(broker.client, "async", "async", site))
        assert run.state == "success"
        wait_until(lambda: "first page" in log_of(broker, run.identity), "the line in the log")
    # The page "/" links to 1, 2 and 0.
    assert sorted(worker.did()) == ['"other 7 1"'] * 3 + ['{"from": "start"}']


def test_a_mistake_on_a_page_costs_only_itself(broker: Broker, site: str, journal: Path) -> None:
    with Program("spider.py", broker.url, journal) as worker:
        run = result_of(broker, crawl(broker.client, "odd", "odd", site))
        wait_until(lambda: any("404" in line for line in log_of(broker, run.identity)), "the log")
        log = "\n".join(log_of(broker, run.identity))
    assert run.state == "success"
    assert (run.success, run.error) == (7, 1)
    assert sorted(worker.did()) == [
        *['"a text is an item"'] * 2,
        '"well the time number 3"',
        "cp1252 <p>déjà vu",
        "cp932 <meta charset=shift_jis>テスト",
        *["tried"] * 3,
    ]
    assert "the database is away" not in log
    for text in (
        "a page that cannot be read",
        "an item that cannot be stored",
        "an http or https URL with a host is expected: 'ftp://example.com/'",
        "a request was left out request={",
        "Odd has no method `no_such_method`",
        "status 404",
    ):
        assert text in log, f"{text}\n{log}"


@pytest.mark.parametrize(
    ("class_name", "reason"), [("cannot-start", "FileNotFoundError: the sitemap is gone"), ("cannot-be-made", "no database")]
)
def test_a_spider_that_cannot_start_fails_its_run(broker: Broker, journal: Path, class_name: str, reason: str) -> None:
    with Program("spider.py", broker.url, journal):
        run = result_of(broker, crawl(broker.client, class_name, class_name, "http://127.0.0.1:9/"))
    assert run.state == "failed"
    assert reason in (run.reason or "")


def test_a_crawl_that_is_stopped_ends(broker: Broker, site: str, journal: Path) -> None:
    with Program("spider.py", broker.url, journal, PAUSE="0.1") as worker:
        run = crawl(broker.client, "stopped", "site", site, BlockSize="2")
        wait_until(lambda: len(items(worker)) > 3, "some pages")
        broker.client.stop_run(run)
        worker.wait_for("closed stopped")
        assert len(items(worker)) < PAGES
        worker.terminate()
        assert worker.wait() == 0


def test_a_spider_is_closed_though_the_end_is_stored_late() -> None:
    """The broker refuses calls of a run that ends, and shows its old state until the end is stored."""
    states = iter(["running", "running", "stopped"])
    closed: list[str] = []

    class Late:
        async def _send(self, *_: object) -> None:
            raise ApiError(409, {"type": "/problems/run-over"})

        async def read_run(self, _: str) -> SimpleNamespace:
            return SimpleNamespace(state=next(states))

    class Closes(Spider):
        def closed(self, reason: str) -> None:
            closed.append(reason)

    start = {"identity": "1" * 32, "jobId": "2" * 32, "className": "late", "attempt": 1, "startReturned": True}
    asyncio.run(Crawl(Late(), "3" * 32, Closes, start, 1).carry_out())  # type: ignore[arg-type]
    assert closed == ["stopped"]


def test_a_crawl_whose_attempt_failed_ends_without_being_closed() -> None:
    """Another attempt of the run follows: the next order to start it must find nothing at work."""
    closed: list[str] = []

    class Waits:
        async def _send(self, *_: object) -> None:
            await asyncio.sleep(60)

        async def append_logs(self, *_: object) -> None: ...

    class Closes(Spider):
        def closed(self, reason: str) -> None:
            closed.append(reason)

    async def carried_out() -> None:
        start = {"identity": "1" * 32, "jobId": "2" * 32, "className": "again", "attempt": 1, "startReturned": True}
        crawl = Crawl(Waits(), "3" * 32, Closes, start, 1)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(crawl.ended, "pending")
        await crawl.carry_out()

    asyncio.run(carried_out())
    assert closed == []


@pytest.mark.parametrize(("status", "spiders"), [(502, 1), (400, 2)])
def test_a_crawl_goes_on_after_a_call_that_failed(status: int, spiders: int) -> None:
    """The start has returned, so the broker waits for this worker. A standby answers 502 when the leader is lost."""
    made: list[Spider] = []
    ended: list[str] = []
    calls: list[str] = []

    class Fails:
        async def _send(self, method: str, *_: object) -> SimpleNamespace:
            calls.append(method)
            if len(calls) == 1:
                raise ApiError(status, {})
            return SimpleNamespace(status_code=204, content=b"", headers={"webloom-run-state": "success"})

        async def append_logs(self, *_: object) -> None: ...

    class Closes(Spider):
        def __init__(self, run: Run) -> None:
            super().__init__(run)
            made.append(self)

        def closed(self, reason: str) -> None:
            ended.append(reason)

    start = {"identity": "1" * 32, "jobId": "2" * 32, "className": "fails", "attempt": 1, "startReturned": True}
    asyncio.run(Crawl(Fails(), "3" * 32, Closes, start, 1).carry_out())  # type: ignore[arg-type]
    assert (ended, calls, len(made)) == (["success"], ["GET", "GET"], spiders)


def test_a_poll_that_waits_is_made_again_when_the_broker_was_left() -> None:
    class Hangs:
        calls = 0

        async def _send(self, *_: object) -> SimpleNamespace:
            self.calls += 1
            if self.calls == 1:
                asyncio.get_running_loop().call_soon(crawls[0].poll_again)
                await asyncio.Event().wait()
            return SimpleNamespace(status_code=204, content=b"", headers={"webloom-run-state": "success"})

        async def append_logs(self, *_: object) -> None: ...

    async def carried_out() -> None:
        start = {"identity": "1" * 32, "jobId": "2" * 32, "className": "hangs", "attempt": 1, "startReturned": True}
        crawls.append(Crawl(client, "3" * 32, Spider, start, 1))  # type: ignore[arg-type]
        await asyncio.wait_for(crawls[0].carry_out(), 30)

    crawls: list[Crawl] = []
    client = Hangs()
    asyncio.run(carried_out())
    assert client.calls == 2


def test_crawls_that_block_do_not_wait_for_each_other() -> None:
    """More of them than asyncio has threads."""
    together = threading.Barrier(40, timeout=60)

    class Ends:
        async def _send(self, method: str, *_: object) -> SimpleNamespace:
            return SimpleNamespace(status_code=204, content=b"", headers={"webloom-run-state": "success"})

        async def append_logs(self, *_: object) -> None: ...

    class Blocks(Spider):
        def closed(self, state: str) -> None:
            together.wait()

    async def all_of_them() -> None:
        start = {"identity": "1" * 32, "jobId": "2" * 32, "className": "blocks", "attempt": 1, "startReturned": True}
        crawls = [Crawl(Ends(), "3" * 32, Blocks, start, 1) for _ in range(40)]  # type: ignore[arg-type]
        await asyncio.gather(*(crawl.carry_out() for crawl in crawls))

    asyncio.run(all_of_them())
    assert not together.broken


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_another_worker_goes_on_with_a_crawl(broker: Broker, site: str, journal: Path, how: str) -> None:
    with Program("spider.py", broker.url, journal, PAUSE="0.02") as first:
        run = crawl(broker.client, f"handed over by {how}", "site", site, BlockSize="4")
        wait_until(lambda: len(items(first)) > 10, "some pages")
        if how == "kill":
            first.kill()
        else:
            first.terminate()
            assert first.wait() == 0
        before = len(items(first))
        assert before < PAGES
    with Program("spider.py", broker.url, journal) as second:
        ended = result_of(broker, run)
        second.wait_for("closed success")
    assert (ended.state, ended.success) == ("success", PAGES + 1)
    paths = collections.Counter(str(item["path"]) for item in items(second))
    assert set(paths) == {"", *map(str, range(PAGES))}
    twice = sum(count - 1 for count in paths.values())
    # What was not acknowledged comes again: one block, or none after an orderly end.
    assert twice <= (4 if how == "kill" else 0), paths


def test_a_crawl_survives_the_broker_and_broken_connections(site: str, journal: Path) -> None:
    with Broker(["--grace", "500", "--worker-offline", "2000"]) as broker, network(broker) as between:
        broker.agent("--retry-download", "0")
        with Program("spider.py", between.url, journal, PAUSE="0.02") as worker:
            run = crawl(broker.client, "shaken", "site", site, BlockSize="4")
            wait_until(lambda: len(items(worker)) > 5, "some pages")
            between.cut()
            wait_until(lambda: len(items(worker)) > 20, "more pages")
            broker.kill()
            broker.start()
            ended = result_of(broker, run)
            worker.wait_for("closed success")
    assert (ended.state, ended.success) == ("success", PAGES + 1)
    assert {item["path"] for item in items(worker)} == {"", *map(str, range(PAGES))}


def test_the_example_of_a_spider_works(broker: Broker, site: str, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "python" / "spider.py"
    with Program(str(example), broker.url, tmp_path / "journal") as worker:
        assert result_of(broker, crawl(broker.client, "example", "demo.PythonTitles", site)).state == "success"
        wait_until(lambda: sum(line.startswith('{"url"') for line in worker.lines) == PAGES + 1, "the lines")

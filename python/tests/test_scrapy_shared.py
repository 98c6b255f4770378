"""Several processes of one Scrapy spider share one crawl."""

from __future__ import annotations

import collections
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from support import Program, wait_until
from webloom import models
from webloom.testing import Broker

PAGES = 120
QUICK = ["--node-offline", "1500", "--node-heartbeat", "300"]


class Site:
    """A tree of pages, each with a link to the first one, and pages for single purposes. It counts what is asked for."""

    def __init__(self) -> None:
        self.hits: collections.Counter[str] = collections.Counter()
        self.is_open = threading.Event()
        self.is_open.set()
        #: Pages that are answered while the site is closed, and requests that wait.
        self.free = 0
        self.waiting = 0
        self._lock = threading.Lock()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status: int, body: str, *headers: tuple[str, str]) -> None:
                raw = body.encode()
                self.send_response(status)
                for name, value in (("Content-Type", "text/html"), *headers, ("Content-Length", str(len(raw)))):
                    self.send_header(name, value)
                with contextlib.suppress(OSError):  # its process was killed
                    self.end_headers()
                    self.wfile.write(raw)

            def do_GET(self) -> None:
                name = self.path.strip("/")
                count = site.enter(name)
                if name.isdigit():
                    links = [n for n in (2 * int(name) + 1, 2 * int(name) + 2, 0) if n < PAGES]
                    self.answer(200, "".join(f'<a href="/{n}">{n}</a>' for n in links))
                elif name == "login":
                    self.answer(200, "in", ("Set-Cookie", "session=7; Path=/"))
                elif name.startswith("members"):
                    self.answer(200, self.headers["Cookie"] or "no cookie")
                elif name == "redirect":
                    self.answer(302, "", ("Location", "/arrived"))
                elif name == "busy":
                    self.answer(503 if count == 1 else 200, "busy")
                elif name == "gone":
                    self.answer(404, "gone")
                else:
                    self.answer(200, name)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                site.enter(self.path.strip("/"))
                self.answer(200, repr(body))

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 100

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def enter(self, name: str) -> int:
        with self._lock:
            self.hits[name] += 1
            count = self.hits[name]
            if self.is_open.is_set() or self.free > 0:
                self.free -= 1
                return count
            self.waiting += 1
        self.is_open.wait(60)
        return count

    def shut(self, after: int) -> None:
        """Answers so many requests more, and no further one until it is opened."""
        self.free = after
        self.is_open.clear()

    def fetched_twice(self) -> list[str]:
        # The first request is not filtered, so the link that leads back to it is followed once, as in any crawl of Scrapy.
        return sorted(name for name, count in self.hits.items() if count > 1 + (name == "0"))


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.is_open.set()
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(QUICK) as broker:
        yield broker


class Fleet:
    """Processes of one spider. Each has a file of its own for its items."""

    def __init__(self, broker: Broker, site: Site, folder: Path, crawl: str) -> None:
        self.broker, self.site, self.folder, self.crawl = broker, site, folder, crawl
        self.stack = contextlib.ExitStack()
        self.processes: list[Program] = []

    def start(self, *, ready: str = "crawl has a run", settings: dict[str, Any] | None = None, **environment: str) -> Program:
        items = self.folder / f"items-{len(self.processes)}.jsonl"
        with_crawl = {
            "WEBLOOM_CRAWL": self.crawl,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
            "CONCURRENT_REQUESTS": 4,
            **(settings or {}),
        }
        words = {"SITE": self.site.url, "GATE": str(self.folder / "gate"), "SETTINGS": json.dumps(with_crawl), **environment}
        program = Program("scrapy_shared.py", self.broker.url, items, ready=ready, **words)
        self.processes.append(self.stack.enter_context(program))
        return program

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def items(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for program in self.processes for line in program.did()]
        return sorted(found, key=str)

    def pages(self) -> list[int]:
        return sorted(int(item["page"]) for item in self.items() if "page" in item)

    def run(self) -> models.RunOutput:
        job = self.broker.client.list_jobs(name=self.crawl).items[0]
        return self.broker.client.list_runs(job_id=job.id).items[0]

    def wait_for_questions(self, program: Program) -> None:
        """Returns when the process has asked for work several times more."""
        client, name = self.broker.client, f" {program.process.pid}"

        heard = set[datetime]()

        def has_asked() -> bool:
            heard.update(node.last_online_time for node in client.list_nodes().items if (node.name or "").endswith(name))
            return len(heard) > 12

        wait_until(has_asked, "questions for work")

    def finish(self, *programs: Program) -> None:
        for program in programs:
            assert program.wait() == 0
            assert any("Spider closed (finished)" in line for line in program.lines)
            assert not any("Traceback" in line for line in program.lines), "\n".join(program.lines)


@pytest.fixture
def fleet(broker: Broker, site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(broker, site, tmp_path, request.node.name[:25])
    with fleet.stack:
        yield fleet


ALL = sorted([*range(PAGES), 0])


def test_two_processes_share_a_crawl_and_no_page_is_fetched_twice(fleet: Fleet, site: Site) -> None:
    site.shut(0)
    processes = [fleet.start(), fleet.start()]
    wait_until(lambda: site.waiting, "the first request")
    site.is_open.set()
    fleet.finish(*processes)
    assert fleet.pages() == ALL
    assert site.fetched_twice() == []
    assert all(len(process.did()) > PAGES / 10 for process in processes), [len(process.did()) for process in processes]
    run = fleet.run()
    assert (run.state, run.success, run.error) == ("success", PAGES + 1, 0)
    # What a process counted is in the log of the run, and the sum in its stats.
    lines = [line.text for line in fleet.broker.client.read_logs(run.identity).items]
    counted = [json.loads(line[line.index("{") :]) for line in lines if line.startswith("scrapy ")]
    assert sum(stats["item_scraped_count"] for stats in counted) == PAGES + 1
    assert max(stats["webloom/run/success"] for stats in counted) == PAGES + 1
    assert [node for node in fleet.broker.client.list_nodes().items if node.group.startswith("scrapy-")] == []


def test_a_process_that_is_killed_loses_no_request(fleet: Fleet, site: Site) -> None:
    site.shut(30)
    first, second = fleet.start(), fleet.start()
    # Both processes ask for as much as they may.
    wait_until(lambda: site.waiting == 8, "requests of both processes")
    first.kill()
    site.is_open.set()
    fleet.finish(second)
    assert sorted(set(fleet.pages())) == list(range(PAGES))
    assert fleet.run().state == "success"
    assert site.fetched_twice(), "what the killed process had is fetched again"


def test_a_callback_that_was_cut_short_runs_again(fleet: Fleet, site: Site) -> None:
    processes = [fleet.start(ALSO="slow"), fleet.start(ALSO="slow")]
    at_work = wait_until(lambda: [p for p in processes if "slow begins" in p.lines], "the callback")
    at_work[0].kill()
    fleet.open_gate()
    fleet.finish(*[process for process in processes if process is not at_work[0]])
    assert [item for item in fleet.items() if "about" in item] == [
        {"about": "after-slow", "text": "after-slow"},
        {"about": "slow"},
    ]
    assert (site.hits["slow"], site.hits["after-slow"]) == (2, 1)
    assert sorted(set(fleet.pages())) == list(range(PAGES))


def test_a_process_without_work_stays_until_the_crawl_is_over(fleet: Fleet, site: Site) -> None:
    processes = [fleet.start(ALSO="slow"), fleet.start(ALSO="slow")]
    at_work = wait_until(lambda: [p for p in processes if "slow begins" in p.lines], "the callback")[0]
    idle = next(process for process in processes if process is not at_work)
    wait_until(lambda: fleet.run().left == 1, "the other pages")
    fleet.wait_for_questions(idle)
    assert idle.process.poll() is None
    fleet.open_gate()
    fleet.finish(*processes)
    assert site.hits["after-slow"] == 1
    assert fleet.pages() == ALL


def test_a_crawl_goes_on_after_all_processes_were_killed(fleet: Fleet, site: Site) -> None:
    site.shut(40)
    first = fleet.start()
    wait_until(lambda: site.waiting == 4, "requests")
    first.kill()
    site.is_open.set()
    second = fleet.start()
    fleet.finish(second)
    assert sorted(set(fleet.pages())) == list(range(PAGES))
    # What the first one had reported is not fetched again.
    assert len(site.fetched_twice()) < 40


def test_a_process_that_is_asked_to_end_leaves_its_requests_to_the_others(fleet: Fleet, site: Site) -> None:
    site.shut(30)
    first = fleet.start()
    wait_until(lambda: site.waiting == 4, "requests")
    first.terminate()
    first.wait_for_line("Closing spider (shutdown)")
    site.is_open.set()
    assert first.wait() == 0
    assert fleet.run().left > 0
    fleet.finish(fleet.start())
    assert fleet.pages() == ALL
    assert site.fetched_twice() == []


def test_the_broker_may_die(site: Site, tmp_path: Path) -> None:
    with Broker() as broker:
        fleet = Fleet(broker, site, tmp_path, "restart")
        with fleet.stack:
            site.shut(30)
            processes = [fleet.start(), fleet.start()]
            wait_until(lambda: site.waiting == 8, "requests of both processes")
            broker.kill()
            site.is_open.set()
            broker.start()
            fleet.finish(*processes)
            assert sorted(set(fleet.pages())) == list(range(PAGES))


def test_a_named_crawl_is_not_begun_again(fleet: Fleet, site: Site) -> None:
    fleet.finish(fleet.start())
    hits = site.hits.total()
    fleet.finish(fleet.start(ready="crawl is over"))
    assert site.hits.total() == hits


def test_without_a_name_a_new_crawl_begins(fleet: Fleet, site: Site) -> None:
    for count in (1, 2):
        fleet.finish(fleet.start(settings={"WEBLOOM_CRAWL": None}))
        assert site.hits["7"] == count


def test_an_operator_stops_the_crawl(fleet: Fleet, site: Site) -> None:
    site.shut(30)
    process = fleet.start()
    wait_until(lambda: site.waiting == 4, "requests")
    fleet.broker.client.stop_run(fleet.run().identity)
    process.wait_for_line("Closing spider (webloom_run_stopped)")
    site.is_open.set()
    assert process.wait() == 0
    assert site.hits.total() < PAGES


def test_an_operator_puts_a_process_out(fleet: Fleet, site: Site) -> None:
    site.shut(30)
    client, processes = fleet.broker.client, [fleet.start(), fleet.start(), fleet.start()]
    wait_until(lambda: site.waiting >= 4, "requests")
    workers: dict[str, str] = {}

    def are_there() -> bool:
        workers.update({(worker.name or "").split()[-1]: worker.id for worker in client.list_workers(online=True).items})
        return all(str(process.process.pid) in workers for process in processes)

    wait_until(are_there, "the workers")
    client.drain_worker(workers[str(processes[0].process.pid)], {"reason": "new version"})
    client.kick_worker(workers[str(processes[1].process.pid)], {"reason": "it runs wild"})
    processes[0].wait_for_line("Closing spider (webloom_drained)")
    processes[1].wait_for_line("Closing spider (webloom_kicked)")
    site.is_open.set()
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert fleet.pages() == ALL
    assert site.fetched_twice() == []
    assert fleet.run().state == "success"


def test_a_crawl_finds_what_plain_scrapy_finds(fleet: Fleet, site: Site) -> None:
    also = "local login carried redirect busy gone"
    settings = {"HTTPERROR_ALLOWED_CODES": [404]}
    fleet.finish(fleet.start(ALSO=also, settings=settings), fleet.start(ALSO=also, settings=settings))
    shared, fleet.processes = fleet.items(), []
    site.hits.clear()
    fleet.folder = fleet.folder / "plain"
    fleet.folder.mkdir()
    fleet.finish(fleet.start(ALSO=also, settings=settings, PLAIN="yes", ready="Spider opened"))
    assert shared == fleet.items()
    texts = {item["about"]: item["text"] for item in shared if "about" in item}
    assert texts["of-lambda"] == "of-lambda"
    assert texts["busy"] == "busy"
    assert texts["gone"] == "gone"
    assert texts["arrived"] == "arrived"
    assert texts["values"][1] == repr([1, (2, b"\xff"), {3: None}, 1 << 70, 0.5])
    # A session that one process has got is known to the others.
    assert {text for about, text in texts.items() if about.startswith("members")} == {"session=7"}


def test_a_login_goes_along_with_the_requests_that_follow(fleet: Fleet, site: Site) -> None:
    site.shut(1)
    first = fleet.start(STARTS="0", ALSO="login")
    wait_until(lambda: site.waiting == 4, "pages for members")
    first.terminate()
    first.wait_for_line("Closing spider (shutdown)")
    site.is_open.set()
    assert first.wait() == 0
    second = fleet.start(STARTS="0", ALSO="login")
    fleet.finish(second)
    assert site.hits["login"] == 1
    assert [item["text"] for item in fleet.items()] == ["session=7"] * 40
    assert len(second.did()) > 30


def test_a_request_that_cannot_be_sent_comes_again_with_its_page(fleet: Fleet, site: Site) -> None:
    site.shut(1)
    first = fleet.start(STARTS="0", ALSO="local")
    wait_until(lambda: site.waiting == 1, "the request with a lambda")
    first.kill()
    site.is_open.set()
    second = fleet.start(STARTS="0", ALSO="local")
    fleet.finish(second)
    assert [item["text"] for item in fleet.items()] == ["of-lambda"]
    assert (site.hits["local"], site.hits["of-lambda"]) == (2, 2)


def test_the_nodes_may_download_for_a_shared_crawl(fleet: Fleet, site: Site) -> None:
    agent = fleet.broker.agent()
    handlers = {"DOWNLOAD_HANDLERS": dict.fromkeys(("http", "https"), "webloom.scrapy.FleetDownloadHandler")}
    try:
        fleet.finish(fleet.start(settings=handlers), fleet.start(settings=handlers))
    finally:
        agent.stop()
    assert fleet.pages() == ALL
    assert site.fetched_twice() == []


def test_blocks_of_other_runs_are_given_back(fleet: Fleet, site: Site) -> None:
    client = fleet.broker.client
    process = fleet.start(ALSO="slow")
    process.wait_for_line("slow begins")
    # Any node may have it.
    job = client.create_job({"name": "other", "jobType": "block", "properties": {"FullClassName": "Other", "NoWorker": "wait"}})
    run = client.trigger_job(job.id).identity
    client.push_requests(run, {"requests": [{"url": f"{site.url}other"}]})
    fleet.wait_for_questions(process)
    assert site.hits["other"] == 0
    assert (client.read_run(run).left, client.read_run(run).block_times) == (1, 1)
    agent = fleet.broker.agent()
    try:
        wait_until(lambda: client.read_run(run).success == 1, "the download by an agent")
    finally:
        agent.stop()
    client.stop_run(run)
    fleet.open_gate()
    fleet.finish(process)


def test_settings_of_scrapy_that_touch_the_queue_do_no_harm(fleet: Fleet, site: Site, tmp_path: Path) -> None:
    names = {"JOBDIR": str(tmp_path / "jobdir"), "DEPTH_PRIORITY": 1, "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    fleet.finish(fleet.start(settings=names))
    assert fleet.pages() == ALL
    # The second link to the first page is answered from the cache of this process.
    assert fleet.run().success == PAGES + 1
    assert site.hits["0"] == 1

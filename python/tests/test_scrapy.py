"""A Scrapy project whose downloads go through the fleet does what it does without it."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_S, Program, wait_until
from webloom.client import FINAL_STATES
from webloom.scrapy import _with_credentials
from webloom.testing import Broker

PAGES = 30


class _Handler(http.server.BaseHTTPRequestHandler):
    busy = True

    def answer(self, status: int, body: str | bytes, *headers: tuple[str, str]) -> None:
        raw = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in (("Content-Type", "text/html; charset=utf-8"), *headers, ("Content-Length", str(len(raw)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name.isdigit():
            links = [n for n in (2 * int(name) + 1, 2 * int(name) + 2, 0) if n < PAGES]
            self.answer(200, "".join(f'<a href="/{n}">{n}</a>' for n in links))
        elif name == "login":
            self.answer(200, "in", ("Set-Cookie", "session=7; Path=/"), ("Set-Cookie", "other=8; Path=/"))
        elif name == "members":
            self.answer(200, f"cookies {sorted((self.headers['Cookie'] or '').split('; '))}")
        elif name == "redirect":
            self.answer(302, "", ("Location", "/arrived"))
        elif name == "once-busy":
            is_busy, _Handler.busy = _Handler.busy, False
            self.answer(503 if is_busy else 200, "once")
        elif name == "gzip":
            self.answer(200, gzip.compress("é".encode()), ("Content-Encoding", "gzip"))
        elif name == "headers":
            said = {key.lower(): value for key, value in self.headers.items()}
            self.answer(200, json.dumps([said.get(key) for key in ("x-mine", "user-agent", "cookie", "accept-language")]))
        else:
            self.answer(200, name)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.answer(200, f"{self.headers['Content-Type']} {body!r}")

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
    with Broker() as broker:
        broker.agent()
        yield broker


def crawl(broker: Broker, site: str, items: Path, **environment: str) -> list[dict[str, Any]]:
    _Handler.busy = True
    with Program("scrapy_site.py", broker.url, items, ready="", SITE=site, **environment) as scrapy:
        assert scrapy.wait() == 0
        assert not any("Traceback" in line for line in scrapy.lines), "\n".join(scrapy.lines)
    return sorted((json.loads(line) for line in items.read_text().splitlines()), key=str)


def test_the_fleet_brings_what_scrapy_brings(broker: Broker, site: str, tmp_path: Path) -> None:
    fleet = crawl(broker, site, tmp_path / "fleet.jsonl", FLEET="yes")
    plain = crawl(broker, site, tmp_path / "plain.jsonl")
    # The one thing that cannot work: a body that is no text.
    assert {"lost": "NotSupported"} in fleet
    fleet.remove({"lost": "NotSupported"})
    plain = [item for item in plain if item.get("about") != "bytes"]
    assert fleet == plain
    assert len(fleet) == PAGES + 7
    texts = {item["about"]: item["text"] for item in fleet if "about" in item}
    assert texts["members"] == "cookies ['other=8', 'session=7']"
    assert texts["arrived"] == "arrived"
    assert texts["once-busy"] == "once"
    assert {"lost": "DownloadConnectionRefusedError"} in fleet
    runs = broker.client.list_runs().items
    assert [run.state for run in runs] == ["success"]
    # Pages, two each for the login, the redirect and the busy one, and three more.
    assert (runs[0].success, runs[0].error) == (PAGES + 2 + 2 + 1 + 3, 2)
    assert broker.client.list_jobs().items == [], "the job is deleted"


def test_scrapy_can_be_stopped(broker: Broker, site: str, tmp_path: Path) -> None:
    with Program("scrapy_site.py", broker.url, tmp_path / "items", ready="crawl has a run", SITE=site, FLEET="yes") as scrapy:
        scrapy.process.send_signal(signal.SIGTERM)
        assert scrapy.wait() == 0
    assert broker.client.list_jobs().items == []
    wait_until(lambda: all(run.finish_time for run in broker.client.list_runs().items), "the end of the run")


def test_a_run_that_an_operator_stops_ends_scrapy(broker: Broker, site: str, tmp_path: Path) -> None:
    agents = broker.client.list_nodes().items
    broker.client.disable_node(agents[0].node_id)
    with Program("scrapy_site.py", broker.url, tmp_path / "items", ready="crawl has a run", SITE=site, FLEET="yes") as scrapy:
        run = next(run for run in broker.client.list_runs().items if run.finish_time is None)
        broker.client.stop_run(run.identity)
        assert scrapy.wait() == 0
        assert any("webloom_run_over" in line for line in scrapy.lines)


def test_the_run_of_a_shell_ends_with_the_shell(site: str, tmp_path: Path) -> None:
    settings = "DOWNLOAD_HANDLERS = {'http': 'webloom.scrapy.FleetDownloadHandler'}\nLOG_LEVEL = 'WARNING'\n"
    (tmp_path / "settings.py").write_text(settings)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    with Broker() as broker:
        broker.agent()
        environment = {**os.environ, "WEBLOOM_BROKER": broker.url}
        command = [sys.executable, "-m", "scrapy", "shell", f"{site}about", "-c", "(response.status, response.text)"]
        shell = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert "(200, 'about')" in shell.stdout
        runs = broker.client.list_runs().items
        assert len(runs) == 1
        assert runs[0].state in FINAL_STATES
        assert broker.client.list_jobs().items == []


def test_a_crawl_that_was_killed_is_cleared_by_the_next_one(site: str, tmp_path: Path) -> None:
    with Broker(["--grace", "500", "--worker-offline", "2000"]) as broker:
        with Program("scrapy_site.py", broker.url, tmp_path / "items", ready="crawl has a run", SITE=site, FLEET="yes") as scrapy:
            scrapy.kill()
        wait_until(lambda: not broker.client.list_workers(online=True).items, "the loss of the worker")
        broker.agent()
        # For a while the process may be cut off, or not have noticed that the broker is there again.
        assert len(crawl(broker, site, tmp_path / "items", FLEET="yes")) == PAGES + 8
        assert [run.state for run in broker.client.list_runs().items if run.state in FINAL_STATES] == ["success"]
        assert len(broker.client.list_jobs().items) == 1
        assert len(crawl(broker, site, tmp_path / "more items", FLEET="yes", GONE_S="-60")) == PAGES + 8
        assert sorted(run.state for run in broker.client.list_runs().items) == ["stopped", "success", "success"]
        assert broker.client.list_jobs().items == []


def test_a_crawl_waits_for_a_broker_that_is_away(site: str, tmp_path: Path) -> None:
    with Broker() as broker:
        broker.kill()
        with Program("scrapy_site.py", broker.url, tmp_path / "items", ready="broker is away", SITE=site, FLEET="yes") as scrapy:
            broker.start()
            broker.agent()
            assert scrapy.wait() == 0
        assert len((tmp_path / "items").read_text().splitlines()) == PAGES + 8


def test_credentials_of_a_proxy_go_to_the_proxy() -> None:
    assert _with_credentials("http://p:1", "Basic dTpwQDE=") == "http://u:p%401@p:1"
    assert _with_credentials("p:1", None) == "http://p:1"
    assert _with_credentials("socks5://p:1", "Bearer x") == "socks5://p:1"

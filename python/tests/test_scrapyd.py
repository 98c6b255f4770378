"""scrapyd-client deploys an egg to the broker and runs its spiders on a node."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from scrapyd_client.exceptions import ErrorResponse
from scrapyd_client.pyclient import ScrapydClient

from support import PATIENCE_S, wait_until
from webloom.testing import Broker

BIN = Path(sys.executable).parent
TOKEN = "admin-0123456789abcdef"
AGENT = ["--applications", "--application-users", "root", "--heartbeat", "1", "--max-programs", "1"]

SPIDERS = """
import scrapy


class Pages(scrapy.Spider):
    name = "pages"

    def __init__(self, url="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse(self, response):
        print("parsed", response.text, self._job, self.settings["MARK"], getattr(self, "word", None))


class Other(Pages):
    name = "other"
"""


class _Handler(http.server.BaseHTTPRequestHandler):
    #: Set when `/wait` may be answered.
    is_open = threading.Event()
    #: Set when `/wait` was requested.
    is_asked = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/wait":
            _Handler.is_asked.set()
            _Handler.is_open.wait(PATIENCE_S)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"a page")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    _Handler.is_open.clear()
    _Handler.is_asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    _Handler.is_open.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    # The programs of a node have the PATH of its agent.
    monkeypatch.setenv("PATH", str(BIN), prepend=":")
    with Broker(["--token", f"admin:{TOKEN}", "--token", "readonly:reader-0123456789abc"], token=TOKEN) as broker:
        yield broker


def project(folder: Path, url: str, spiders: str = SPIDERS, password: str = TOKEN) -> Path:
    package = folder / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("SPIDER_MODULES = ['shop.spiders']\nROBOTSTXT_OBEY = False\n")
    (package / "spiders.py").write_text(spiders)
    deploy = f"[deploy]\nurl = {url}\nproject = shop\nusername = any\npassword = {password}\n"
    (folder / "scrapy.cfg").write_text(f"[settings]\ndefault = shop.settings\n{deploy}")
    return folder


def deploy(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(BIN / "scrapyd-deploy"), "--version", version]
    return subprocess.run(
        words, cwd=folder, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S * 2, check=False
    )


def client(broker: Broker, password: str = TOKEN) -> ScrapydClient:
    return ScrapydClient(broker.url, username="any", password=password)


def finished(scrapyd: ScrapydClient, job: str) -> dict[str, Any]:
    wait_until(lambda: scrapyd.status(job, "shop")["currstate"] == "finished", f"the end of {job}")
    found: dict[str, Any] = next(item for item in scrapyd.jobs("shop")["finished"] if item["id"] == job)
    return found


def log(broker: Broker, item: dict[str, Any]) -> str:
    answer = requests.get(f"{broker.url}{item['log_url']}?limit=1000", headers={"Token": TOKEN}, timeout=PATIENCE_S)
    return "\n".join(line["text"] for line in answer.json()["items"])


def test_a_project_is_deployed_scheduled_and_deleted(broker: Broker, site: str, tmp_path: Path) -> None:
    agent = ["--token", TOKEN, *AGENT]
    broker.agent(*agent)
    folder = project(tmp_path / "shop", broker.url)
    done = deploy(folder, "1.9")
    assert done.returncode == 0, done
    assert '"spiders":2' in done.stdout, done
    assert '"status":"ok"' in deploy(folder, "1.10").stdout

    scrapyd = client(broker)
    assert scrapyd.projects() == ["shop"]
    assert scrapyd.versions("shop") == ["1.9", "1.10"]
    assert scrapyd.spiders("shop") == ["other", "pages"]

    job = scrapyd.schedule("shop", "pages", [("url", f"{site}/"), ("setting", "MARK=m=1"), ("word", "two words {jobId}")])
    item = finished(scrapyd, job)
    assert (item["project"], item["spider"]) == ("shop", "pages")
    assert f"parsed a page {job} m=1 two words {{jobId}}" in log(broker, item)

    # As people type it in the folder of the project, with an id of their own and an earlier version.
    words = [
        sys.executable,
        str(BIN / "scrapyd-client"),
        "schedule",
        "-p",
        "shop",
        "--arg",
        f"url={site}/",
        "--arg",
        "jobid=mine",
        "--arg",
        "_version=1.9",
        "other",
    ]
    said = subprocess.run(words, text=True, capture_output=True, timeout=PATIENCE_S, check=False, cwd=folder)
    assert said.returncode == 0, said
    assert "mine" in said.stdout, said
    assert "parsed a page mine None None" in log(broker, finished(scrapyd, "mine"))

    scrapyd.delversion("shop", "1.10")
    assert scrapyd.versions("shop") == ["1.9"]
    scrapyd.delproject("shop")
    assert scrapyd.projects() == []
    with pytest.raises(ErrorResponse, match="project 'shop' not found"):
        scrapyd.schedule("shop", "pages")
    with pytest.raises(ErrorResponse, match="project 'shop' not found"):
        scrapyd.jobs("shop")


def test_a_run_waits_for_a_slot_and_is_cancelled(broker: Broker, site: str, tmp_path: Path) -> None:
    broker.agent("--token", TOKEN, *AGENT)
    assert deploy(project(tmp_path / "shop", broker.url), "1").returncode == 0
    scrapyd = client(broker)
    # The run that listed the spiders may still have its slot.
    first = scrapyd.schedule("shop", "pages", [("url", f"{site}/wait")])
    assert _Handler.is_asked.wait(PATIENCE_S)
    wait_until(lambda: scrapyd.status(first)["currstate"] == "running", "the first run")
    second = scrapyd.schedule("shop", "pages", [("url", f"{site}/"), ("setting", "A=1")])
    third = scrapyd.schedule("shop", "other", [("url", f"{site}/")])
    jobs = scrapyd.jobs("shop")
    assert [item["id"] for item in jobs["running"]] == [first]
    pending = {item["id"]: (item["settings"], item["args"]) for item in jobs["pending"]}
    assert pending == {second: ({"A": "1"}, {"url": f"{site}/"}), third: ({}, {"url": f"{site}/"})}
    counts = scrapyd.daemonstatus()
    assert (counts["pending"], counts["running"], counts["finished"]) == (2, 1, 0)

    assert scrapyd.cancel("shop", second)["prevstate"] == "pending"
    assert scrapyd.cancel("shop", second)["prevstate"] is None
    assert scrapyd.cancel("shop", "unknown")["prevstate"] is None
    _Handler.is_open.set()
    assert "parsed a page" in log(broker, finished(scrapyd, first))
    assert "parsed a page" in log(broker, finished(scrapyd, third)), "it waited until there was a slot"


def test_a_running_spider_is_cancelled(broker: Broker, site: str, tmp_path: Path) -> None:
    broker.agent("--token", TOKEN, *AGENT)
    assert deploy(project(tmp_path / "shop", broker.url), "1").returncode == 0
    scrapyd = client(broker)
    job = scrapyd.schedule("shop", "pages", [("url", f"{site}/wait")])
    assert _Handler.is_asked.wait(PATIENCE_S)
    wait_until(lambda: scrapyd.status(job)["currstate"] == "running", "the run")
    assert scrapyd.cancel("shop", job)["prevstate"] == "running"
    _Handler.is_open.set()
    item = finished(scrapyd, job)
    assert "Received SIGTERM" in log(broker, item)


def test_what_cannot_work_is_said(broker: Broker, tmp_path: Path) -> None:
    agent = broker.agent("--token", TOKEN, *AGENT)
    broken = deploy(project(tmp_path / "broken", broker.url, "raise OSError('no such shelf')\n"), "1")
    assert "no such shelf" in broken.stdout, broken
    scrapyd = client(broker)
    assert scrapyd.projects() == [], "an egg whose spiders cannot be listed is no version"

    wrong = deploy(project(tmp_path / "wrong", broker.url, password="wrong-0123456789abcdef"), "1")
    assert (wrong.returncode, "Deploy failed (401)" in wrong.stderr) == (1, True), wrong
    assert "does not have this token" in wrong.stdout
    reader = client(broker, "reader-0123456789abc")
    assert reader.projects() == []
    with pytest.raises(ErrorResponse, match="is not enough for this call"):
        reader.schedule("shop", "pages")

    def add(egg: bytes | None, **fields: str) -> str:
        files = {"egg": ("project.egg", egg)} if egg is not None else None
        answer = requests.post(f"{broker.url}/addversion.json", data=fields, files=files, auth=("any", TOKEN), timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()["status"]) == (200, "error"), answer.text
        return str(answer.json()["message"])

    assert add(b"x", version="1") == "'project' parameter is required"
    assert add(None, project="shop", version="1").startswith("'egg' parameter is required")
    assert "not a usable ZIP file" in add(b"no zip", project="shop", version="1")

    agent.stop()
    empty = tmp_path / "empty.egg"
    with zipfile.ZipFile(empty, "w") as egg:
        egg.writestr("a.py", "")
    assert "Start an agent with --applications" in add(empty.read_bytes(), project="shop", version="1")
    assert scrapyd.projects() == []

"""Projects of the forms that people know from Scrapy's examples run on the fleet as they are: only settings are added.

They are like quotesbot (CSS and XPath, pages), dirbot (item loaders, a pipeline that drops items) and booksbot (rules, detail
pages, CSV). Their code is ours.
"""

from __future__ import annotations

import csv
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import scrapy_projects_site as sites
from support import HERE, wait_until
from webloom.testing import Broker

_HANDLER = "webloom.scrapy.FleetDownloadHandler"
_DOWNLOADS = ("-s", "DOWNLOAD_HANDLERS=" + json.dumps({"http": _HANDLER, "https": _HANDLER}))
_SCHEDULER = ("-s", "SCHEDULER=webloom.scrapy.FleetScheduler")
#: How docs/python.md puts a project on the fleet, by what of it the fleet does.
MODES = {
    "plain": (),
    "downloads": _DOWNLOADS,
    "queue": (*_SCHEDULER, "-s", "WEBLOOM_CRAWL=queue"),
    "both": (*_DOWNLOADS, *_SCHEDULER, "-s", "WEBLOOM_CRAWL=both"),
}

# Four processes of Scrapy at once, beside other tests.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.agent()
        yield broker


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), sites.Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("project", "spiders", "output", "count"),
    [
        # Two that bring the same items.
        ("quotes", ["by-css", "by-xpath"], "items.jsonl", sites.QUOTES),
        ("directory", ["directory"], "items.jsonl", sites.DIRECTORY - sites.GAMBLING),
        ("books", ["books"], "items.csv", sites.BOOKS),
    ],
)
def test_a_project_brings_the_same_items_on_the_fleet(
    broker: Broker, site: str, tmp_path: Path, project: str, spiders: list[str], output: str, count: int
) -> None:
    before = {run.identity for run in broker.client.all(broker.client.list_runs)}
    processes = {}
    for number, (mode, settings) in enumerate(MODES.items()):
        spider = spiders[number % len(spiders)]
        (tmp_path / mode).mkdir()
        file = tmp_path / mode / output
        command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"site={site}", "-o", str(file), *settings]
        environment = {**os.environ, "WEBLOOM_BROKER": broker.url, "PYTHONDONTWRITEBYTECODE": "1"}
        with (tmp_path / mode / "log").open("w") as log:
            processes[mode] = subprocess.Popen(
                command, cwd=HERE / "scrapy_projects" / project, env=environment, stdin=subprocess.DEVNULL, stderr=log
            )
    items = {}
    for mode, process in processes.items():
        code = process.wait(250)
        assert code == 0, f"{mode}:\n{(tmp_path / mode / 'log').read_text()}"
        with (tmp_path / mode / output).open(newline="") as lines:
            read = list(csv.DictReader(lines)) if output.endswith(".csv") else [json.loads(line) for line in lines]
        items[mode] = sorted(read, key=str)
    assert len(items["plain"]) == count
    for mode in MODES:
        assert items[mode] == items["plain"], f"{mode}:\n{(tmp_path / mode / 'log').read_text()}"

    def states() -> list[str]:
        return [run.state for run in broker.client.all(broker.client.list_runs) if run.identity not in before]

    # Downloads have a run, a queue has one, and both together have two.
    wait_until(lambda: states() == ["success"] * 4, "the end of four runs")

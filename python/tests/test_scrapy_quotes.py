"""The project in examples/scrapy, an ordinary one of Scrapy, crawls a site of quotes with several processes."""

from __future__ import annotations

import collections
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from webloom.testing import Broker

PROJECT = Path(__file__).parents[2] / "examples" / "scrapy"
PAGES, QUOTES, AUTHORS = 10, 10, 23


class _Handler(http.server.BaseHTTPRequestHandler):
    hits: ClassVar[collections.Counter[str]] = collections.Counter()

    def do_GET(self) -> None:
        _Handler.hits[self.path] += 1
        parts = self.path.strip("/").split("/")
        body = ""
        if parts[0] == "author":
            body = f'<h3 class="author-title">{parts[1]}</h3><span class="author-born-date">{1800 + int(parts[1])}</span>'
        elif parts[0] in ("", "page"):
            page = int(parts[1]) if len(parts) > 1 else 1
            for number in range(page * QUOTES, (page + 1) * QUOTES):
                author = number % AUTHORS
                body += (
                    f'<div class="quote"><span class="text">“Quote {number}”</span>'
                    f'<span>by <small class="author">{author}</small>'
                    f'<a href="/author/{author}">(about)</a></span><a class="tag">t{number % 3}</a></div>'
                )
            body += f'<ul><li class="next"><a href="/page/{page + 1}/">Next</a></li></ul>' if page < PAGES else ""
        raw = f"<html><body>{body}</body></html>".encode()
        self.send_response(404 if parts[0] == "robots.txt" else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    _Handler.hits.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def crawl(broker: Broker, spider: str, site: str, folder: Path, count: int, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"url={site}", *options]
    # With a name, a process that starts late does not begin a second crawl.
    environment = {**os.environ, "WEBLOOM_BROKER": broker.url, "PYTHONDONTWRITEBYTECODE": "1"}
    files = [folder / f"{spider}-{number}.jsonl" for number in range(count)]
    processes = []
    for file in files:
        started = subprocess.Popen([*command, "-o", str(file)], cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL)
        processes.append(started)
    assert [process.wait(60) for process in processes] == [0] * count
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=str)


def test_three_processes_bring_all_quotes(broker: Broker, site: str, tmp_path: Path) -> None:
    items = crawl(broker, "quotes", site, tmp_path, 3, "-s", "WEBLOOM_CRAWL=quotes")
    assert len(items) == PAGES * QUOTES
    assert len({item["text"] for item in items}) == PAGES * QUOTES
    assert all(item["text"].startswith("Quote ") and int(item["born"]) == 1800 + int(item["author"]) for item in items)
    assert all(count == 1 for path, count in _Handler.hits.items() if path.startswith("/page/"))
    usual = ["-s", "SCHEDULER=scrapy.core.scheduler.Scheduler"]
    (tmp_path / "usual").mkdir()
    assert crawl(broker, "quotes", site, tmp_path / "usual", 1, *usual) == items


def test_rules_of_a_crawl_spider_work(broker: Broker, site: str, tmp_path: Path) -> None:
    items = crawl(broker, "authors", site, tmp_path, 3, "-s", "WEBLOOM_CRAWL=authors")
    assert sorted(int(item["author"]) for item in items) == list(range(AUTHORS))
    assert all(count == 1 for path, count in _Handler.hits.items() if path != "/robots.txt")

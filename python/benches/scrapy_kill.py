"""Pages that a crawl of two Scrapy processes loses when one is killed with kill -9: the fleet's scheduler and scrapy-redis.

    python scrapy_kill.py --pages 2000 --rounds 5

A page is lost if no process has parsed it when the crawl is over.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from redis_server import Redis
from scrapy_crawl import HERE, settings_of
from webloom.testing import Broker


def spider_process(variant: str) -> None:
    """One process of the crawl. It prints the number of each page that it has parsed."""
    import scrapy
    from scrapy.crawler import CrawlerProcess

    class Pages(scrapy.Spider):
        name = "pages"
        start_urls: Any = (os.environ["SITE"] + "0",)

        def parse(self, response: Any) -> Any:
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link)
            yield {"page": response.url.rpartition("/")[2]}

    class Print:
        def process_item(self, item: Any) -> Any:
            print(item["page"], flush=True)
            return item

    # A process of scrapy-redis ends at once when the queue is empty for a moment, unless it is told to wait.
    more = {"SCHEDULER_IDLE_BEFORE_CLOSE": 10} if variant == "redis" else {}
    process = CrawlerProcess({**settings_of(variant), **more, "WEBLOOM_CRAWL": os.environ["CRAWL"], "ITEM_PIPELINES": {Print: 1}})
    process.crawl(Pages)
    process.start()


class Process:
    """One process, and the pages that it has printed."""

    def __init__(self, variant: str, environment: dict[str, str]) -> None:
        self.pages: set[int] = set()
        self.reached = threading.Event()
        command = [sys.executable, __file__, "--variant", variant]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.pages.add(int(line))
            if len(self.pages) >= int(os.environ.get("KILL_AFTER", "200")):
                self.reached.set()
        self.reached.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        return spider_process(options.variant)
    variants = ["fleet"]
    if importlib.util.find_spec("scrapy_redis") and shutil.which("redis-server"):
        variants.append("redis")
    words = [sys.executable, str(HERE / "pages_site.py"), str(options.pages)]
    site = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert site.stdout is not None
    port = site.stdout.readline().strip()
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    try:
        with Broker(["--node-offline", "3000", "--node-heartbeat", "1000"]) as broker, Redis("redis" in variants) as redis:
            for round_ in range(options.rounds):
                for variant in variants:
                    environment = {**os.environ, "SITE": f"http://127.0.0.1:{port}/", "WEBLOOM_BROKER": broker.url}
                    environment.update(REDIS=redis.url, CRAWL=uuid.uuid4().hex[:12], PYTHONPATH=path)
                    both = [Process(variant, environment) for _ in range(2)]
                    both[0].reached.wait(120)
                    both[0].process.kill()
                    both[1].process.wait(300)
                    for one in both:
                        one.reader.join(10)
                    lost = set(range(options.pages)) - both[0].pages - both[1].pages
                    print(
                        f"round {round_}: {variant:6} killed after {len(both[0].pages):5} pages, lost {len(lost):4}", flush=True
                    )
                    redis.flush()
    finally:
        site.kill()


if __name__ == "__main__":
    main()

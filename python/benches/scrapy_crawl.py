"""Pages per second of processor time of a Scrapy process: plain, with the scheduler of the fleet, with its download handler, and
with scrapy-redis.

    python scrapy_crawl.py --pages 3000 --rounds 5

WEBLOOM_BINARY names the program `webloom`. scrapy-redis is left out if it, or `redis-server`, is not installed. The variants take
turns, so that each round compares what ran at about the same time. The time counts from the opening of the spider to its end,
with all threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from redis_server import Redis
from webloom.testing import Broker

HERE = Path(__file__).parent


def spider_process(variant: str) -> None:
    """One crawl in this process; its figures as JSON."""
    import scrapy
    from scrapy import signals
    from scrapy.crawler import CrawlerProcess

    begin: dict[str, float] = {}

    class Pages(scrapy.Spider):
        name = "pages"
        start_urls: Any = (os.environ["SITE"] + "0",)

        @classmethod
        def from_crawler(cls, crawler: Any, *arguments: Any, **named: Any) -> Any:
            spider = super().from_crawler(crawler, *arguments, **named)
            crawler.signals.connect(spider.begun, signal=signals.spider_opened)
            crawler.signals.connect(spider.ended, signal=signals.spider_closed)
            return spider

        def begun(self) -> None:
            begin.update(cpu=time.process_time(), wall=time.monotonic())

        def ended(self) -> None:
            figures = {"cpu": time.process_time() - begin["cpu"], "wall": time.monotonic() - begin["wall"]}
            figures["pages"] = self.crawler.stats.get_value("item_scraped_count")
            print(json.dumps(figures), flush=True)

        def parse(self, response: Any) -> Any:
            yield {"title": response.css("title::text").get(), "texts": len(response.css("p.text").getall())}
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link)

    process = CrawlerProcess(settings_of(variant))
    process.crawl(Pages)
    process.start()


def settings_of(variant: str) -> dict[str, Any]:
    """The settings of a project with this scheduler or download handler."""
    settings: dict[str, Any] = {"LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}
    if variant == "fleet":
        settings.update(SCHEDULER="webloom.scrapy.FleetScheduler", WEBLOOM_CRAWL=uuid.uuid4().hex[:12])
    elif variant == "nodes":
        handler = "webloom.scrapy.FleetDownloadHandler"
        settings.update(DOWNLOAD_HANDLERS={"http": handler, "https": handler}, WEBLOOM_BLOCK_SIZE=16)
    elif variant == "redis":
        settings.update(
            SCHEDULER="scrapy_redis.scheduler.Scheduler",
            DUPEFILTER_CLASS="scrapy_redis.dupefilter.RFPDupeFilter",
            REDIS_URL=os.environ["REDIS"],
        )
    return settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        return spider_process(options.variant)
    variants = ["plain", "fleet", "nodes"]
    if importlib.util.find_spec("scrapy_redis") and shutil.which("redis-server"):
        variants.append("redis")
    site = subprocess.Popen([sys.executable, str(HERE / "pages_site.py"), str(options.pages)], stdout=subprocess.PIPE, text=True)
    assert site.stdout is not None
    port = site.stdout.readline().strip()
    rates: dict[str, list[float]] = {variant: [] for variant in variants}
    walls: dict[str, list[float]] = {variant: [] for variant in variants}
    try:
        with Broker() as broker, Redis("redis" in variants) as redis:
            broker.agent()
            environment = {**os.environ, "SITE": f"http://127.0.0.1:{port}/", "WEBLOOM_BROKER": broker.url, "REDIS": redis.url}
            for _ in range(options.rounds):
                for variant in variants:
                    command = [sys.executable, __file__, "--variant", variant]
                    made = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                    figures = json.loads(made.stdout.splitlines()[-1])
                    # The first page is fetched once more by the link that leads back to it.
                    assert figures["pages"] in (options.pages, options.pages + 1), figures
                    rates[variant].append(figures["pages"] / figures["cpu"])
                    walls[variant].append(figures["pages"] / figures["wall"])
                    print(
                        f"{variant:6} {rates[variant][-1]:8.1f} pages per CPU second, {walls[variant][-1]:8.1f} a second",
                        flush=True,
                    )
                    redis.flush()
    finally:
        site.kill()
    print(f"\n{'':6} {'pages/CPU s':>12} {'pages/s':>10} {'of plain':>10}")
    for variant in variants:
        of_plain = statistics.median(mine / plain for mine, plain in zip(rates[variant], rates["plain"], strict=True))
        rate, wall = statistics.median(rates[variant]), statistics.median(walls[variant])
        print(f"{variant:6} {rate:12.1f} {wall:10.1f} {of_plain:10.3f}")


if __name__ == "__main__":
    main()

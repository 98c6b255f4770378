"""A Scrapy spider whose crawl is shared by all its processes. With PLAIN in the environment it is a usual crawl."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.downloadermiddlewares import cookies
from tldextract import TLDExtract

# Scrapy asks the network for the list of public suffixes when it sees the first cookie; the one that comes with the package does.
cookies._split_domain = TLDExtract(include_psl_private_domains=True, suffix_list_urls=())


class Page(scrapy.Item):
    name: Any = scrapy.Field()


class SharedSpider(scrapy.Spider):
    name = "shared"

    async def start(self) -> AsyncIterator[Any]:
        url = os.environ["SITE"]
        for number in range(int(os.environ.get("STARTS", "1"))):
            yield scrapy.Request(f"{url}{number}", dont_filter=True)
        for part in os.environ.get("ALSO", "").split():
            yield scrapy.Request(f"{url}{part}", getattr(self, part), errback=self.lost, priority=5)

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"page": response.url.rpartition("/")[2]}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)

    async def slow(self, response: Any) -> AsyncIterator[Any]:
        print("slow begins", flush=True)
        while not os.path.exists(os.environ["GATE"]):  # noqa: ASYNC110, ASYNC240, the test opens it
            await asyncio.sleep(0.02)
        yield {"about": "slow"}
        yield response.follow("/after-slow", self.about)

    def local(self, response: Any) -> Iterator[Any]:
        # A callback that is no method cannot be sent to another process.
        yield response.follow("/of-lambda", lambda answer: self.about(answer), cb_kwargs={})

    def login(self, response: Any) -> Iterator[Any]:
        for number in range(40):
            yield response.follow(f"/members-{number}", self.about)

    def carried(self, response: Any) -> Iterator[Any]:
        page = Page(name="caf\xe9")
        yield response.follow(
            "/carries",
            self.with_values,
            method="POST",
            body=b"\xff\x00",
            cb_kwargs={"values": [1, (2, b"\xff"), {3: None}, 1 << 70, 0.5], "page": page},
            priority=1000,
            meta={"mine": {"$": "own"}},
        )

    def with_values(self, response: Any, values: Any, page: Page) -> Iterator[Any]:
        yield {
            "about": "values",
            "text": [response.text, repr(values), repr(page), response.meta["mine"]],
        }
        yield {"about": "priority", "text": response.request.priority}

    def redirect(self, response: Any) -> Iterator[Any]:
        return self.about(response)

    def busy(self, response: Any) -> Iterator[Any]:
        return self.about(response)

    def gone(self, response: Any) -> Iterator[Any]:
        return self.about(response)

    def about(self, response: Any) -> Iterator[Any]:
        yield {"about": response.url.rpartition("/")[2], "text": response.text}

    def lost(self, failure: Any) -> Iterator[Any]:
        yield {"lost": failure.value.__class__.__name__}


shared = {} if "PLAIN" in os.environ else {"SCHEDULER": "webloom.scrapy.FleetScheduler"}
process = CrawlerProcess(
    {
        **shared,
        "FEEDS": {os.environ["JOURNAL"]: {"format": "jsonlines"}},
        "RETRY_TIMES": 2,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": os.environ.get("LEVEL", "INFO"),
        **json.loads(os.environ.get("SETTINGS", "{}")),
    }
)
process.crawl(SharedSpider)
process.start()

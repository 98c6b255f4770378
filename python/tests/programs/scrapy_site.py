"""A Scrapy spider that knows nothing of Webloom. With FLEET in the environment, its downloads go through the fleet."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.downloadermiddlewares import cookies
from tldextract import TLDExtract

# Scrapy asks the network for the list of public suffixes when it sees the first cookie; the one that comes with the package does.
cookies._split_domain = TLDExtract(include_psl_private_domains=True, suffix_list_urls=())


class SiteSpider(scrapy.Spider):
    name = "site"

    async def start(self) -> AsyncIterator[Any]:
        url = os.environ["SITE"]
        yield scrapy.Request(f"{url}0")
        yield scrapy.Request(f"{url}login", self.logged_in)
        yield scrapy.Request(f"{url}redirect", self.about)
        yield scrapy.Request(f"{url}once-busy", self.about)
        yield scrapy.Request(f"{url}gzip", self.about)
        yield scrapy.FormRequest(f"{url}form", formdata={"q": "é & b"}, callback=self.about)
        yield scrapy.Request(f"{url}headers", self.about, headers={"X-Mine": "1"}, cookies={"a": "b"}, meta={"cookiejar": "own"})
        yield scrapy.Request("http://127.0.0.1:9/", self.about, errback=self.lost, meta={"max_retry_times": 0})
        yield scrapy.Request(f"{url}bytes", self.about, method="POST", body=b"\xff", errback=self.lost)

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"page": response.url.rpartition("/")[2], "type": type(response).__name__}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)

    def logged_in(self, response: Any) -> Iterator[Any]:
        yield scrapy.Request(response.urljoin("/members"), self.about)

    def about(self, response: Any) -> Iterator[Any]:
        yield {"about": response.url.rpartition("/")[2], "status": response.status, "text": response.text}

    def lost(self, failure: Any) -> Iterator[Any]:
        yield {"lost": failure.value.__class__.__name__}


if "GONE_S" in os.environ:
    import webloom.scrapy

    webloom.scrapy._GONE_S = float(os.environ["GONE_S"])
handlers = dict.fromkeys(("http", "https"), "webloom.scrapy.FleetDownloadHandler") if "FLEET" in os.environ else {}
process = CrawlerProcess(
    {
        "DOWNLOAD_HANDLERS": handlers,
        "FEEDS": {os.environ["JOURNAL"]: {"format": "jsonlines", "overwrite": True}},
        "RETRY_TIMES": 2,
        "USER_AGENT": "scrapy of the test",
        "TELNETCONSOLE_ENABLED": False,
        "WEBLOOM_PROPERTIES": {"NodeGroup": "default"},
    }
)
process.crawl(SiteSpider)
process.start()

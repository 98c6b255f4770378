"""A spider: it follows the links of a site and prints the title of each page as a line of JSON.

    pip install './python[parsel]'
    python examples/python/spider.py

It finds the broker by WEBLOOM_BROKER and WEBLOOM_TOKEN. Agents (`webloom agent`) download the pages.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from webloom import Response, Spider, Worker

worker = Worker()


@worker.spider("demo.PythonTitles")
class Titles(Spider):
    """The arguments of the run are the URLs to begin with."""

    def parse(self, response: Response) -> Iterator[Any]:
        if not response.headers.get("content-type", "").startswith("text/html"):
            return
        yield {"url": response.url, "title": response.css("title::text").get(), "key": response.request_id}
        here = urlsplit(response.url).netloc
        for link in response.css("a::attr(href)").getall():
            request = response.follow(link)
            if urlsplit(request.url).netloc == here:
                yield request


if __name__ == "__main__":
    worker.run()

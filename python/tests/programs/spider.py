"""The spiders of the tests. They write what they do to a journal."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from webloom import Request, Response, Run, Spider, Worker

worker = Worker()


def note(text: str) -> None:
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


def links(response: Response) -> Iterator[str]:
    return (found for found in re.findall(r'href="([^"]+)"', response.text) if found.startswith("/"))


@worker.spider("site")
class Site(Spider):
    """Follows all links."""

    def parse(self, response: Response) -> Iterator[Any]:
        time.sleep(float(os.environ.get("PAUSE", "0")))
        yield {"path": response.url.partition("//")[2].partition("/")[2], "id": response.request_id, "depth": response.depth}
        for link in links(response):
            yield response.follow(link)

    def item(self, item: Any, response: Response) -> None:
        note(json.dumps(item))

    def failed(self, response: Response) -> None:
        note(f"failed {response.status} {response.error.kind if response.error else None}")

    def closed(self, state: str) -> None:
        note(f"closed {state}")


@worker.spider("async", parallel=2)
class Async(Spider):
    """The same with coroutines, callbacks and meta."""

    async def start(self) -> AsyncIterator[Request]:
        for url in self.run.arguments.split():
            yield Request(url, callback=self.first, meta={"from": "start"})

    async def first(self, response: Response) -> list[Any]:
        logging.info("first page")
        return [response.meta, *(response.follow(link, self.other, meta=7) for link in links(response))]

    async def other(self, response: Response) -> AsyncIterator[Any]:
        yield f"other {response.meta} {response.depth}"

    async def item(self, item: Any, response: Response) -> None:
        note(json.dumps(item))


@worker.spider("odd")
class Odd(Spider):
    """Does all that it should not."""

    count = 0

    def start(self) -> Iterator[Any]:
        url = self.run.arguments
        yield url
        yield Request(f"{url}latin", callback="text")
        yield Request(f"{url}none", callback="no_such_method")
        yield Request(f"{url}gone")
        yield Request(f"{url}7", callback=self.with_wrong_requests)
        yield Request(f"{url}8", callback=self.with_wrong_item)
        yield Request(f"{url}9", callback=self.well_the_second_time)

    def parse(self, response: Response) -> Iterator[Any]:
        note("tried")
        yield Request(f"{response.url}never")
        raise ValueError("a page that cannot be read")

    def with_wrong_requests(self, response: Response) -> Iterator[Any]:
        yield Request("ftp://example.com/")
        yield Request("http://exa mple/")
        yield Request(response.urljoin("/after"), callback=self.text)

    def with_wrong_item(self, response: Response) -> set[int]:
        return {1}  # its elements are items, and this one is no text

    def well_the_second_time(self, response: Response) -> list[str]:
        self.count += 1
        if self.count < 3:
            raise TimeoutError("the database is away")
        return [f"well the time number {self.count}"]

    def text(self, response: Response) -> str:
        note(f"{response.encoding} {response.text.strip()}")
        return "a text is an item"

    def item(self, item: Any, response: Response) -> None:
        if not isinstance(item, str):
            raise TypeError("an item that cannot be stored")
        note(json.dumps(item))


@worker.spider("cannot-start")
class CannotStart(Spider):
    def start(self) -> list[Request]:
        raise FileNotFoundError("the sitemap is gone")


@worker.spider("cannot-be-made")
class CannotBeMade(Spider):
    def __init__(self, run: Run) -> None:
        raise RuntimeError("no database")


if __name__ == "__main__":
    worker.run()

"""The scheduler of a shared crawl by itself: what Scrapy's own tests ask of a scheduler, and how requests are written."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.cookiejar import Cookie
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Field, FormRequest, Item, Request, Spider
from scrapy.core.scheduler import BaseScheduler, Scheduler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import JsonRequest

from webloom import _scrapy_cookies as cookies
from webloom._scrapy_calls import Calls
from webloom._scrapy_requests import Unserializable, extras_of, from_message, priority_of, to_message
from webloom._scrapy_scheduler import _job_name
from webloom._settings import Settings
from webloom.errors import BrokerUnavailable
from webloom.scrapy import FleetScheduler
from webloom.testing import Broker


class OneSpider(Spider):
    name = "one"

    def parse_one(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


class ThingItem(Item):
    name: Any = Field()


SPIDER = OneSpider()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def crawler_of(broker: Broker, crawl: str, **settings: Any) -> Crawler:
    names = {"WEBLOOM_BROKER": broker.url, "WEBLOOM_CRAWL": crawl, "TWISTED_REACTOR_ENABLED": False}
    crawler = Crawler(OneSpider, {**names, **settings})
    crawler.spider = crawler._create_spider()
    crawler._apply_settings()
    engine: Any = SimpleNamespace(running=False, spider=crawler.spider, _start=iter([]), downloader=None)
    engine._slot = SimpleNamespace(inprogress=set())
    engine.downloader = SimpleNamespace(middleware=SimpleNamespace(middlewares=[]))
    crawler.engine = engine
    return crawler


@asynccontextmanager
async def opened(broker: Broker, crawl: str, **settings: Any) -> AsyncIterator[FleetScheduler]:
    crawler = crawler_of(broker, crawl, **settings)
    scheduler = FleetScheduler.from_crawler(crawler)
    assert crawler.spider is not None
    await scheduler.open(crawler.spider).asFuture(asyncio.get_running_loop())
    try:
        yield scheduler
    finally:
        await scheduler.close("finished").asFuture(asyncio.get_running_loop())


async def take(scheduler: FleetScheduler, count: int) -> list[str]:
    """The paths of the next requests, as the engine asks for them."""
    found: list[str] = []

    def is_complete() -> bool:
        while (request := scheduler.next_request()) is not None:
            cast("Any", scheduler.crawler.engine)._slot.inprogress.add(request)
            found.append(request.url.rpartition("/")[2])
        return len(found) >= count

    await until(is_complete)
    return found


async def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


# What tests/test_scheduler.py and tests/test_scheduler_base.py of Scrapy ask.


def test_the_interface_is_scrapys() -> None:
    assert issubclass(FleetScheduler, BaseScheduler)
    for name in ("from_crawler", "open", "close", "enqueue_request", "next_request", "has_pending_requests", "__len__"):
        assert callable(getattr(FleetScheduler, name)), name
        assert callable(getattr(Scheduler, name)), name


def test_what_is_put_in_comes_out_by_priority(broker: Broker, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        async with opened(broker, request.node.name[:30]) as scheduler:
            priorities = {"a": -1000, "b": -2, "c": 0, "d": 3, "e": 70, "f": 2000}
            for path, priority in priorities.items():
                assert scheduler.enqueue_request(Request(f"http://foo.test/{path}", priority=priority))
            assert scheduler.has_pending_requests()
            scheduler._want()
            await until(lambda: len(scheduler) == len(priorities))
            assert await take(scheduler, len(priorities)) == ["f", "e", "d", "c", "b", "a"]
            assert scheduler.next_request() is None
            stats = scheduler.crawler.stats
            assert stats.get_value("scheduler/enqueued") == stats.get_value("scheduler/dequeued") == len(priorities)

    asyncio.run(main())


def test_duplicates_are_dropped_by_the_fleet(broker: Broker, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        async with opened(broker, request.node.name[:30]) as first, opened(broker, request.node.name[:30]) as second:
            assert first.enqueue_request(Request("http://foo.test/?b=2&a=1"))
            assert not first.enqueue_request(Request("http://foo.test/?a=1&b=2"))
            assert first.enqueue_request(Request("http://foo.test/?a=1&b=2", dont_filter=True))
            assert await take(first, 2) == ["?b=2&a=1", "?a=1&b=2"]
            # The other process has not seen it, and learns it from the broker.
            assert second.enqueue_request(Request("http://foo.test/?a=1&b=2"))
            stats = second.crawler.stats
            await until(lambda: stats.get_value("dupefilter/filtered"))
            assert second.next_request() is None

    asyncio.run(main())


def test_what_was_not_begun_is_there_for_the_next_one(broker: Broker, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        crawl = request.node.name[:30]
        async with opened(broker, crawl) as scheduler:
            for path in range(40):
                scheduler.enqueue_request(Request(f"http://foo.test/{path}"))
            await take(scheduler, 3)
        async with opened(broker, crawl) as scheduler:
            # Also the three, whose callbacks never ended.
            assert sorted(map(int, await take(scheduler, 40))) == list(range(40))

    asyncio.run(main())


def test_a_request_that_the_broker_refuses_stays_here(broker: Broker, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        async with opened(broker, request.node.name[:30]) as scheduler:
            urls = ["http://foo.test/1", "http://foo.test:99999/no-port", "http://foo.test/2", "http://[::1/no-host"]
            for url in urls:
                assert scheduler.enqueue_request(Request(url, meta={"verbatim_url": True}))
            assert sorted(await take(scheduler, 4)) == ["1", "2", "no-host", "no-port"]
            stats = scheduler.crawler.stats
            assert stats.get_value("scheduler/unserializable") == 2

    asyncio.run(main())


# Requests as JSON.


def roundtrip(request: Request) -> Request:
    return from_message(json.loads(to_message(request, SPIDER, "key")), SPIDER)


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://foo.test/"),
        Request(
            "http://foo.test/é?q=ü",
            SPIDER.parse_one,
            errback=SPIDER.failed,
            headers={b"X": [b"1", b"2"], b"Y": b"\xff"},
            cookies=[{"name": "a", "value": "b", "path": "/p"}],
            meta={"depth": 3, "t": (1, [2, (3,)]), "d": {5: {"$": "x"}}, "f": 1.5, "n": None, "big": -(1 << 90)},
            encoding="latin-1",
            priority=-12345,
            dont_filter=True,
            flags=["seen"],
            cb_kwargs={"item": ThingItem(name="x"), "raw": bytes(range(256))},
        ),
        FormRequest("http://foo.test/form", formdata={"q": "é & b"}, callback=SPIDER.parse_one),
        JsonRequest("http://foo.test/json", data={"a": [1]}),
    ],
)
def test_a_request_comes_back_as_it_was(request_: Request) -> None:
    back = roundtrip(request_)
    assert type(back) is type(request_)
    assert back.to_dict(spider=SPIDER) == request_.to_dict(spider=SPIDER)
    message = json.loads(to_message(request_, SPIDER, "key"))
    assert priority_of(message) == request_.priority
    assert -100 <= message.get("priority", 0) <= 100
    assert message.get("idempotent") is (None if request_.method == "GET" else True)


class LocalRequest(Request): ...


def test_what_cannot_be_sent_says_so() -> None:
    class Hidden(Request): ...

    for request in (
        Request("http://foo.test/", print),
        Request("http://foo.test/", meta={"x": object()}),
        Request("http://foo.test/", meta={"x": {1, 2}}),
        Request("http://foo.test/", meta={"x": float("nan")}),
        Request("http://foo.test/", cb_kwargs={"x": "\ud800"}),
        Hidden("http://foo.test/"),
        Request("data:text/plain,local"),
        Request("http://foo.test/" + 9000 * "x"),
        Request("http://foo.test/", method="POST", body=(1 << 20) * b"x"),
    ):
        with pytest.raises(Unserializable):
            to_message(request, SPIDER, "key")
    assert type(roundtrip(LocalRequest("http://foo.test/"))) is LocalRequest


@pytest.mark.parametrize(
    "kept",
    [
        {"_class": "os.system"},
        {"_class": "subprocess.Popen"},
        {"_class": "scrapy.Spider"},
        {"callback": "no_such_method"},
        {"callback": "__class__"},
        {"callback": "name"},
        {"errback": "settings"},
        {"meta": {"x": {"$": "item", "c": "os.system", "v": []}}},
        {"meta": {"x": {"$": "pickle", "v": "gASVAAAA"}}},
        {"meta": {"x": {"$": "bytes", "v": 7}}},
        {"headers": 7},
    ],
)
def test_what_the_broker_sends_can_name_nothing_else(kept: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011, any text
        from_message({"url": "http://foo.test/", "meta": {"scrapy": kept}}, SPIDER)


class Trap:
    """Looks like a request, and is none."""

    attributes = Request.attributes
    made = 0

    def __init__(self, **values: Any) -> None:
        Trap.made += 1
        self.callback = self.errback = None


@pytest.mark.parametrize("named", [f"{__name__}.Trap", "antigravity.Request"])
def test_nothing_is_imported_or_called_for_a_name(named: str) -> None:
    with pytest.raises(ValueError, match="is no class of requests"):
        from_message({"url": "http://foo.test/", "meta": {"scrapy": {"_class": named}}}, SPIDER)
    assert Trap.made == 0
    assert "antigravity" not in sys.modules


def test_two_crawls_with_long_names_have_two_jobs() -> None:
    assert _job_name("pages", "2026-11-26") == "scrapy pages 2026-11-26"
    assert _job_name("pages", "") == "scrapy pages"
    names = [_job_name("p" * 50, day) for day in ("2026-11-26", "2026-11-27")]
    assert len(set(names)) == 2
    assert all(len(name) == 50 for name in names)


def test_cookies_go_with_the_requests_of_their_site() -> None:
    def crawler_with(jar: CookiesMiddleware) -> Any:
        middleware = SimpleNamespace(middlewares=[object(), jar])
        return SimpleNamespace(engine=SimpleNamespace(downloader=SimpleNamespace(middleware=middleware)))

    here, there = CookiesMiddleware(), CookiesMiddleware()
    request = Request("http://shop.foo.test/members")
    assert cookies.of(crawler_with(here), request) is None
    facts = (0, "session", "7", None, False, ".foo.test", True, True, "/", True, False, None, True, None, None)
    here.jars[None].set_cookie(Cookie(*facts, rest={}))
    assert cookies.of(crawler_with(here), Request("http://bar.test/")) is None
    assert cookies.of(crawler_with(here), Request("http://shop.foo.test/", meta={"cookiejar": 2})) is None
    assert cookies.of(crawler_with(here), Request("http://shop.foo.test/", meta={"dont_merge_cookies": True})) is None
    message = json.loads(to_message(request, SPIDER, "key", cookies.of(crawler_with(here), request)))
    cookies.put(crawler_with(there), request, extras_of(message))
    there.jars[None].add_cookie_header(request)
    assert request.headers["Cookie"] == b"session=7"
    # What came with a request of one site cannot set cookies of another.
    other = Request("http://bar.test/")
    cookies.put(crawler_with(there), other, extras_of(message))
    there.jars[None].add_cookie_header(other)
    assert "Cookie" not in other.headers


# Calls to the broker.


def test_a_call_goes_to_the_broker_that_leads_and_waits_for_a_token() -> None:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            status = 503 if self.path.startswith("/standby") else 401 if len(asked) < 4 else 200
            body = b'{"type":"/problems/standby"}' if status == 503 else b"{}"
            self.send_response(status)
            self.send_header("webloom-run-state", "running")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        calls = Calls(Settings.read([f"{url}/standby", f"{url}/leader"]))
        assert calls.call("GET", "/x") == (200, "running", b"{}")
        assert asked == ["/standby/x", "/leader/x", "/standby/x", "/leader/x"]
        calls.hang_up()
        with pytest.raises(BrokerUnavailable):
            calls.call("GET", "/x")
        calls.close()
    finally:
        server.shutdown()
        server.server_close()


def test_a_call_that_is_given_up_while_it_connects_does_not_wait(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(Settings.read(broker.url))
    connect = http.client.HTTPConnection.connect

    def given_up_before(connection: http.client.HTTPConnection) -> None:
        calls.hang_up()
        connect(connection)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", given_up_before)
    with pytest.raises(BrokerUnavailable):
        calls.call("GET", "/healthz")
    calls.close()


def test_a_poll_names_the_blocks_that_have_arrived() -> None:
    seen: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Webloom-Holds"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        calls = Calls(Settings((f"http://127.0.0.1:{server.server_port}",), None, None))
        for holds in (None, [], ["a", "b"]):
            calls.call("GET", "/", holds=holds)
        calls.close()
        server.shutdown()
    assert seen == [None, "", "a,b"]


def test_a_call_ends_when_no_broker_comes() -> None:
    calls = Calls(Settings.read("http://127.0.0.1:9"))
    calls.end_at(0.3)
    with pytest.raises(BrokerUnavailable, match="GET /x"):
        calls.call("GET", "/x")

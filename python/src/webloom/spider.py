"""Spiders: classes that say what is downloaded, and read what came."""

from __future__ import annotations

import inspect
import json
import logging
import sys
import uuid
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from . import _charset
from ._bulk import Result
from ._model import parse_instant

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

MOST_URL, MOST_KEY, MOST_PRIORITY = 8_192, 1_024, 100

#: The member of a request that keeps the name of its callback. It travels with the request.
CALLBACK = "callback"


@dataclass
class Request:
    """A page to download.

    Args:
        url: `http` or `https`, at most 8,192 bytes.
        callback: the method of the spider that gets the response, or its name. Default: `parse`.
        method: `GET` unless said.
        headers: headers of this request; they go before those of the job.
        body: a body, as text.
        priority: from -100 to 100; a higher one is dispatched first. Between sites, their pace decides.
        key: what makes the request unique in its run, instead of method, URL and body; at most 1,024 characters.
        dont_filter: a deliberate repetition, which is not compared with what the run has seen.
        idempotent: whether it may be sent more than once. Default: true for GET, HEAD, OPTIONS, TRACE, PUT, DELETE.
        proxy: a proxy for this request, instead of the job's.
        encoding: the character encoding of the page, if you know better than the page.
        meta: any JSON; it comes back with the response.
    """

    url: str
    callback: Callable[..., Any] | str | None = None
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    priority: int = 0
    key: str | None = None
    dont_filter: bool = False
    idempotent: bool | None = None
    proxy: str | None = None
    encoding: str | None = None
    meta: Any = None

    def to_json(self, depth: int) -> dict[str, Any]:
        """The request as the broker takes it.

        Raises:
            ValueError: the broker would not take it.
        """
        parts = urlsplit(self.url)
        if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an http or https URL with a host is expected: {self.url[:200]!r}")
        if len(self.url.encode()) > MOST_URL:
            raise ValueError(f"a URL has at most {MOST_URL} bytes: {self.url[:200]!r}…")
        if self.key is not None and len(self.key) > MOST_KEY:
            raise ValueError(f"a key has at most {MOST_KEY} characters: {self.key[:200]!r}…")
        if not -MOST_PRIORITY <= self.priority <= MOST_PRIORITY:
            raise ValueError(f"priority must be from -{MOST_PRIORITY} to {MOST_PRIORITY}: {self.priority!r}")
        out: dict[str, Any] = {"url": self.url}
        if self.method != "GET":
            out["method"] = self.method
        if depth:
            out["depth"] = depth
        if self.priority:
            out["priority"] = self.priority
        if self.headers:
            out["headers"] = dict(self.headers)
        for name, value in (
            ("body", self.body),
            ("key", self.key),
            ("idempotent", self.idempotent),
            ("proxy", self.proxy),
            ("encoding", self.encoding),
            ("meta", self.meta),
        ):
            if value is not None:
                out[name] = value
        if self.dont_filter:
            # With a random key, a call that is repeated because its answer was lost does not put the request into the queue
            # twice. A key of its own would keep out every later one with the same key.
            out.update(dontFilter=True, key=uuid.uuid4().hex)
        if self.callback is not None:
            name = self.callback if isinstance(self.callback, str) else getattr(self.callback, "__name__", "")
            if name != "parse":
                out[CALLBACK] = name
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Request:
        """The request as it came back."""
        return cls(
            url=value["url"],
            callback=value.get(CALLBACK),
            method=value.get("method") or "GET",
            headers=value.get("headers") or {},
            body=value.get("body"),
            priority=value.get("priority") or 0,
            key=value.get("key"),
            dont_filter=bool(value.get("dontFilter")),
            idempotent=value.get("idempotent"),
            proxy=value.get("proxy"),
            encoding=value.get("encoding"),
            meta=value.get("meta"),
        )


class Headers(Mapping[str, str]):
    """Headers of an answer, found in any case. Of several with one name the first is found; `get_all` has all."""

    def __init__(self, pairs: Iterable[Iterable[str]]) -> None:
        self.pairs = [(str(name), str(value)) for name, value in pairs]

    def __getitem__(self, name: str) -> str:
        for found in self.get_all(name):
            return found
        raise KeyError(name)

    def get_all(self, name: str) -> list[str]:
        """All values of a name, in their order."""
        return [value for other, value in self.pairs if other.lower() == name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.lower() for name, _ in self.pairs))

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self.pairs})

    def __repr__(self) -> str:
        return f"Headers({self.pairs!r})"


@dataclass(frozen=True)
class FetchError:
    """Why there is no answer, or not a whole one.

    Attributes:
        kind: `dns`, `connect`, `tls`, `timeout`, `too-large`, …: docs/protocol.md, section 6.
        message: the same in words.
        retryable: whether another try may go well.
    """

    kind: str
    message: str
    retryable: bool


class Response:
    """What became of a request.

    Attributes:
        request: the request.
        request_id: its id in the run, 24 hexadecimal digits: a good key where items are stored.
        url: the URL that answered, after redirects.
        status: the HTTP status; 0 if there was no answer.
        headers: the headers of the answer.
        body: the body, after decompression.
        error: why there is no answer, or not a whole one; `None` if there is one. A status of 400 is no error.
        depth: links between it and a first request.
        meta: what the request gave along.
        redirected_from: the URLs that redirected to it, in order, unless the job says `Redirects: follow`.
        tries: how often it was tried.
        time: seconds of the last try.
        fetched_at: when the last try began, if the agent has said it.
        remote_address: the IP address that answered, if the agent has said it.
    """

    def __init__(self, result: Result, site_encoding: str | None = None) -> None:
        entry, head = result.entry, result.head
        self.request = Request.from_json(result.request)
        self.request_id: str = entry["requestId"]
        self.url: str = head.get("targetUrl") or self.request.url
        self.status: int = entry.get("status", 0)
        self.headers = Headers(head.get("headers") or ())
        self.body = result.body
        error = entry.get("error")
        self.error = FetchError(error["kind"], error.get("message", ""), bool(error.get("retryable"))) if error else None
        self.depth: int = result.request.get("depth") or 0
        self.meta: Any = self.request.meta
        self.redirected_from: list[str] = list(result.request.get("redirectedFrom") or ())
        self.tries: int = entry.get("tries", 0)
        self.time: float = entry.get("time", 0) / 1000
        fetched_at = head.get("fetchedAt")
        self.fetched_at: datetime | None = parse_instant(fetched_at) if fetched_at else None
        self.remote_address: str | None = head.get("remoteAddress")
        self._site_encoding = site_encoding

    @property
    def ok(self) -> bool:
        """Whether it was answered, wholly, with a status below 400."""
        return self.error is None and 100 <= self.status < 400

    @property
    def is_redirect(self) -> bool:
        """Whether the site has named another URL instead of a page."""
        return self.error is None and self.status in (301, 302, 303, 307, 308) and "location" in self.headers

    @cached_property
    def encoding(self) -> str:
        """The codec of the body: what the request or the job says, else the byte order mark, the `Content-Type`, a `<meta>` in
        the page, UTF-8 if it is that, else a guess."""
        return _charset.encoding_of(self.body, self.request.encoding or self._site_encoding, self.headers.get("content-type"))

    @cached_property
    def text(self) -> str:
        """The body as text."""
        return _charset.decode(self.body, self.encoding)

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ValueError: it is none.
        """
        return json.loads(self.body)

    def urljoin(self, link: str) -> str:
        """The URL of a link of this page. Its query is written in the encoding of the page, as browsers do.

        Raises:
            ValueError: the link is not a URL.
        """
        return _charset.join(self.url, link, self.encoding)

    def follow(self, link: str, callback: Callable[..., Any] | str | None = None, **members: Any) -> Request:
        """A request for a link of this page; `members` are those of `Request`.

        Raises:
            ValueError: the link is not a URL.
        """
        return Request(self.urljoin(link), callback, **members)

    @cached_property
    def selector(self) -> Selector:
        """The page as parsel has it; needs the extra `parsel`."""
        try:
            from parsel import Selector
        except ImportError:
            raise ImportError("css() and xpath() need parsel: pip install parsel") from None
        kind = (self.headers.get("content-type") or "").split(";")[0].strip().lower()
        is_xml = kind.endswith(("/xml", "+xml")) and kind != "application/xhtml+xml"
        return Selector(text=self.text, type="xml" if is_xml else "html", base_url=self.url)

    def css(self, query: str) -> SelectorList[Selector]:
        """Elements by a CSS selector; needs the extra `parsel`."""
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Elements by an XPath; needs the extra `parsel`."""
        return self.selector.xpath(query, **variables)

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url}>"


@dataclass(frozen=True)
class Run:
    """The run that a spider carries out.

    Attributes:
        identity: its id.
        job_id: the id of its job.
        class_name: the class that the job names.
        arguments: what the trigger or the job says.
        properties: those of the job.
        attempt: which attempt of the run this is, from 1.
        planned_at: the time that it was planned for; `None` if it was triggered by hand.
        trace_id: its W3C trace id.
    """

    identity: str
    job_id: str
    class_name: str
    arguments: str
    properties: Mapping[str, str]
    attempt: int
    planned_at: datetime | None
    trace_id: str | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Run:
        """The run of a `start` message."""
        planned = value.get("plannedAt")
        return cls(
            identity=value["identity"],
            job_id=value["jobId"],
            class_name=value["className"],
            arguments=value.get("arguments") or "",
            properties=value.get("properties") or {},
            attempt=value.get("attempt") or 1,
            planned_at=parse_instant(planned) if planned else None,
            trace_id=value.get("traceId"),
        )

    def _property(self, name: str) -> str | None:
        """A property of the job; names are compared without case and underscores, as the broker does."""
        return next((value for key, value in self.properties.items() if key.replace("_", "").lower() == name), None)

    @property
    def site_encoding(self) -> str | None:
        """The encoding that the job's property `Site` names."""
        try:
            named = json.loads(self._property("site") or "{}").get("encoding")
        except (ValueError, AttributeError):
            return None
        return named if isinstance(named, str) else None

    @property
    def requests_redirects(self) -> bool:
        """Whether the run requests the targets of redirects by itself."""
        follows = (self._property("redirects") or "").strip().lower() == "follow"
        return not follows and (self._property("maxredirects") or "").strip() != "0"


#: What a callback gives.
Yielded: TypeAlias = "Iterable[Any] | AsyncIterable[Any] | Awaitable[Any] | None"


class Spider:
    """Carries out a run: one object for each.

    ```python
    @worker.spider("shop.Titles")
    class Titles(Spider):
        def parse(self, response):
            yield {"url": response.url, "title": response.css("title::text").get()}
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link)
    ```

    `start`, `parse`, other callbacks and `failed` may be generators, coroutine functions or asynchronous generators, or return a
    list. What they yield that is a `Request` is downloaded; anything else is an item. Plain functions are called in a
    thread, one at a time for a run.

    A page for which a method raises an exception is tried again twice, from its beginning. Then the exception stands in the log
    of the run, what would follow from the page is left out, and the crawl goes on.

    The requests that follow from the pages of a block are stored together with the block's acknowledgement. So nothing is lost
    when a worker dies; but pages of a block that was not acknowledged come again, and `item` is called again for them.
    `Response.request_id` is the key under which a second time does no harm.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        """The run."""
        self.log = logging.getLogger(f"webloom.spider.{run.class_name}")
        """A logger for the log of the run. Records of all other loggers go there as well."""

    def start(self) -> Yielded:
        """The first requests. Unless overridden: a request for each URL in the arguments of the run."""
        return [Request(url) for url in self.run.arguments.split()]

    def parse(self, response: Response) -> Yielded:
        """Reads a page that was answered with a status below 400."""
        raise NotImplementedError(f"{type(self).__name__} has no method `parse`")

    def failed(self, response: Response) -> Yielded:
        """Hears of a page that was not answered, or with a status of 400 and above. Unless overridden: logs it."""
        why = response.error.message if response.error else f"status {response.status}"
        self.log.warning("page failed url=%s reason=%s", response.request.url, why)
        return None

    def redirected(self, response: Response) -> Yielded:
        """Hears of a redirect whose target is requested by the run: the page comes as a response of its own.

        Unless overridden: does nothing. If the job says `MaxRedirects: 0` or `Redirects: follow`, `parse` gets the redirect.
        """
        return None

    def item(self, item: Any, response: Response) -> Awaitable[None] | None:
        """Gets each item. Unless overridden: prints it as a line of JSON."""
        sys.stdout.write(json.dumps(item, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()
        return None

    def closed(self, state: str) -> Awaitable[None] | None:
        """Called at the end of the run (`success`, `failed`, `stopped`), if this worker still has it."""
        return None

    def callback_of(self, response: Response) -> Callable[[Response], Yielded]:
        """The method for a response."""
        if not response.ok:
            return self.failed
        if response.is_redirect and self.run.requests_redirects:
            return self.redirected
        name = response.request.callback
        if name is None:
            return self.parse
        method = getattr(self, str(name), None)
        if not callable(method) or str(name).startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no method `{name}`")
        found: Callable[[Response], Yielded] = method
        return found


def is_async(value: object) -> bool:
    """Whether a value is to be awaited, or iterated in the event loop."""
    return inspect.isawaitable(value) or isinstance(value, AsyncIterable)

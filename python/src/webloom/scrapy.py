"""Scrapy with the downloads of the fleet: an existing project sends its requests through Webloom's nodes.

```python
# settings.py
DOWNLOAD_HANDLERS = {
    "http": "webloom.scrapy.FleetDownloadHandler",
    "https": "webloom.scrapy.FleetDownloadHandler",
}
```

or with the whole scheduling of the fleet: all processes of a spider share one crawl.

```python
SCHEDULER = "webloom.scrapy.FleetScheduler"
```

It needs the extra `scrapy` of the package.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import ipaddress
import json
import logging
import queue
import threading
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotSupported,
    ResponseDataLossError,
    UnsupportedURLSchemeError,
)
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes

from ._bulk import MEDIA_TYPE, FinishedBlock, Result, read_deliveries
from ._scrapy_calls import Calls
from ._scrapy_scheduler import FleetScheduler
from ._settings import Backoff, Settings
from .client import FINAL_STATES, AsyncClient, Client
from .errors import ApiError, BrokerUnavailable, ProtocolError

if TYPE_CHECKING:
    from datetime import datetime

    from scrapy import Request
    from scrapy.crawler import Crawler
    from typing_extensions import Self

__all__ = ["FleetDownloadHandler", "FleetScheduler"]

log = logging.getLogger("webloom.scrapy")

#: The group of the jobs, and their property with the id of the worker.
GROUP, _WORKER = "scrapy", "ScrapyWorker"

#: The most requests of a push.
_MOST_REQUESTS = 1_000
#: Seconds without a connection after which the process of a crawl is taken for dead.
_GONE_S = 60.0

_handlers: weakref.WeakKeyDictionary[Crawler, FleetDownloadHandler] = weakref.WeakKeyDictionary()

_ERRORS: dict[str, type[Exception]] = {
    "dns": CannotResolveHostError,
    "connect": DownloadConnectionRefusedError,
    "tls": DownloadConnectionRefusedError,
    "timeout": DownloadTimeoutError,
    "too-large": DownloadCancelledError,
    "body": ResponseDataLossError,
    "robots": IgnoreRequest,
}


class FleetDownloadHandler(BaseDownloadHandler):
    """Has the nodes of a fleet download what Scrapy asks for.

    Scrapy's middlewares, its scheduler, its delays and its limits of concurrency work as before, in the process of Scrapy; only
    the bytes come from elsewhere. Redirects, retries and cookies are Scrapy's: the nodes follow, repeat and keep nothing.

    Settings of the project:

    - `WEBLOOM_BROKER`, `WEBLOOM_TOKEN`, `WEBLOOM_CA_FILE`: as the environment variables of these names, and before them. The
      token needs the role admin, since each crawl is a job of its own.
    - `WEBLOOM_PROPERTIES`: properties of that job, for example `{"NodeGroup": "eu"}`.
    - `WEBLOOM_BLOCK_SIZE`: requests that one node downloads together, at most; 4 unless set.
    """

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self._access: dict[str, Any] = {
            "broker": settings.get("WEBLOOM_BROKER"),
            "token": settings.get("WEBLOOM_TOKEN"),
            "ca_file": settings.get("WEBLOOM_CA_FILE"),
        }
        self._client = AsyncClient(**self._access)
        self._block_size = max(1, settings.getint("WEBLOOM_BLOCK_SIZE", 4))
        self._max_size, self._warn_size = settings.getint("DOWNLOAD_MAXSIZE"), settings.getint("DOWNLOAD_WARNSIZE")
        self._max_body = self._max_size or 1 << 30
        self._has_lost_data = False
        self._timeout_s = settings.getfloat("DOWNLOAD_TIMEOUT", 180.0)
        # How the sites are asked is decided by Scrapy: by these settings, and by ROBOTSTXT_OBEY.
        delay_ms = int(settings.getfloat("DOWNLOAD_DELAY") * 1000)
        at_once = min(max(1, settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN", 8)), 64)
        self._manners = {"Delay": str(delay_ms), "PerSite": str(at_once), "Robots": "ignore"}
        self._properties = {str(key): str(value) for key, value in settings.getdict("WEBLOOM_PROPERTIES").items()}
        self._worker_id = uuid.uuid4().hex
        self._opening: asyncio.Task[str] | None = None
        self._job: str | None = None
        self._run: str | None = None
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._unsent: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None: there will be no more
        self._stay_task: asyncio.Task[None] | None = None
        self._push_calls, self._poll_calls = (Calls(Settings.read(**self._access)) for _ in range(2))
        self._poller: threading.Thread | None = None
        self._done: list[str] = []  # blocks to be acknowledged with the next poll; of the polling thread while it lives
        self._is_closing = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        # One for all schemes, so that a crawl has one run.
        made = _handlers.get(crawler)
        if not isinstance(made, cls):
            made = _handlers[crawler] = cls(crawler)
        return made

    async def download_request(self, request: Request) -> Response:
        """Downloads a request at some node.

        Raises:
            NotSupported: the body is no UTF-8, or the node does not support the request.
            UnsupportedURLSchemeError: the scheme is neither http nor https.
            ApiError: the broker refused it.
        """
        if urlsplit(request.url).scheme not in ("http", "https"):
            raise UnsupportedURLSchemeError(f"{request.url}: only http and https go through the fleet")
        if request.meta.get("bindaddress"):
            log.error("The 'bindaddress' request meta key is not supported by %s and will be ignored.", type(self).__name__)
        has_failed = self._opening is not None and self._opening.done() and self._opening.exception() is not None
        if self._opening is None or has_failed:
            self._opening = asyncio.ensure_future(self._open_patiently())
        try:
            await asyncio.shield(self._opening)
        except BrokerUnavailable as error:
            raise DownloadFailedError(str(error)) from error
        key = uuid.uuid4().hex
        message = self._message(request, key)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        self._unsent.put(message)
        try:
            return self._response(request, await future)
        finally:
            self._waiting.pop(key, None)

    @staticmethod
    def _message(request: Request, key: str) -> dict[str, Any]:
        try:
            body = request.body.decode()
        except UnicodeDecodeError:
            raise NotSupported(f"the body of {request} is no UTF-8, and the nodes send texts only") from None
        headers = {}
        for name, values in request.headers.items():
            if values:
                headers[name.decode("latin-1")] = ", ".join(value.decode("latin-1") for value in values)
        message: dict[str, Any] = {"url": request.url, "method": request.method, "key": key}
        proxy = request.meta.get("proxy")
        # The credentials are for the proxy; a header would show them to the site.
        credentials = headers.pop("Proxy-Authorization", None)
        if proxy:
            message["proxy"] = _with_credentials(str(proxy), credentials)
        if headers:
            message["headers"] = headers
        if body:
            message["body"] = body
        return message

    def _response(self, request: Request, result: Result) -> Response:
        error = result.entry.get("error")
        status = result.entry.get("status") or 0
        if error or not status:
            kind = error["kind"] if error else "other"
            said = error.get("message") if error else "no answer"
            if kind == "body" and not self._has_lost_data:
                self._has_lost_data = True
                log.warning("Got data loss in %s. The nodes do not report a part of a body. This is logged once.", request.url)
            raise _ERRORS.get(kind, DownloadFailedError)(f"{request.url}: {said} ({kind})")
        headers = Headers()
        for name, value in result.head.get("headers") or ():
            headers.appendlist(name, value)
        self._check_size(request, len(result.body), is_said="Content-Length" in headers)
        made: type[Response] = responsetypes.from_args(headers=headers, url=request.url, body=result.body)
        address = result.head.get("remoteAddress")
        # AutoThrottle reads it.
        request.meta["download_latency"] = max(result.entry.get("time") or 0, 1) / 1000
        return made(
            url=request.url,
            status=status,
            headers=headers,
            body=result.body,
            request=request,
            ip_address=ipaddress.ip_address(address) if address else None,
            protocol=result.head.get("protocol") or "HTTP/1.1",
        )

    def _check_size(self, request: Request, size: int, *, is_said: bool) -> None:
        """Scrapy's limits for one request; the texts are Scrapy's."""
        said = f"{'Expected to receive' if is_said else 'Received'} {size} bytes which is larger than download"
        most = request.meta.get("download_maxsize", self._max_size)
        if most and size > most:
            text = f"{said} max size ({most}) in request {request}."
            log.warning(text)
            raise DownloadCancelledError(text)
        much = request.meta.get("download_warnsize", self._warn_size)
        if much and size > much:
            log.warning(f"{said} warn size ({much}) in request {request}.")

    # The run.

    async def _open_patiently(self) -> str:
        """As `_open`, and waits for a broker that is away as long as a download may take."""
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                return await self._open()
            except BrokerUnavailable as error:
                if self._is_closing or time.monotonic() > end:
                    raise
                log.warning("broker is away, trying again error=%s", error)
            await asyncio.sleep(1)

    async def _open(self) -> str:
        """A job of this process's own, a run of it, and a worker for it."""
        spider = self.crawler.spider
        name = spider.name if spider else "scrapy"
        class_name = f"scrapy:{name[:60]}:{self._worker_id[:8]}"
        registration = {
            "workerId": self._worker_id,
            "classNames": [class_name],
            "worker": {"name": f"scrapy {name}"[:50], "slots": 0},
        }
        await self._try_to(self._clear())
        await self._client.register_worker(registration)
        properties = {
            "FullClassName": class_name,
            _WORKER: self._worker_id,
            "BlockSize": str(self._block_size),
            "ThreadNum": str(self._block_size),
            "MaxRedirects": "0",
            "RetryDownload": "0",
            "CookieMode": "fixed",
            "Timeout": str(int(self._timeout_s * 1000)),
            "MaxBody": str(min(self._max_body, 1 << 30)),
            **self._manners,
            **self._properties,
        }
        if self._job is None:
            job = await self._client.create_job(
                {
                    "name": f"scrapy {name[:30]} {self._worker_id[:8]}",
                    "group": GROUP,
                    "jobType": "block",
                    "properties": properties,
                }
            )
            self._job = job.id
            atexit.register(self._close_at_exit)
        # The job has one run, however often this is repeated.
        self._client.idempotency_key = self._worker_id
        self._run = (await self._client.trigger_job(self._job)).identity
        log.info("crawl has a run run_id=%s job_id=%s broker=%s", self._run, self._job, self._client.url)
        self._stay_task = asyncio.ensure_future(self._stay(registration))
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        self._poller = threading.Thread(target=self._poll_always, args=(self._run, call_soon), name="webloom-poll", daemon=True)
        self._poller.start()
        threading.Thread(target=self._push_always, args=(self._run, call_soon), name="webloom-push", daemon=True).start()
        return self._run

    async def _clear(self) -> None:
        """Ends what processes of Scrapy left that were killed."""
        # All times are those of the leader's clock.
        now = max((one.last_seen for one in await self._client.list_brokers() if one.role == "leader"), default=None)
        async for job in self._client.all(self._client.list_jobs, group=GROUP):
            worker = job.properties.get(_WORKER)
            if worker is None or now is None or await self._may_live(worker, now):
                continue
            async for run in self._client.all(self._client.list_runs, job_id=job.id):
                if run.state not in FINAL_STATES:
                    log.info("run of a crawl that was killed is stopped run_id=%s", run.identity)
                    await self._client.stop_run(run.identity)
            await self._client.delete_job(job.id)

    async def _may_live(self, worker: str, now: datetime) -> bool:
        """Whether its process may be at work. It may be cut off, or not have noticed yet that the broker is there again."""
        try:
            if (await self._client.read_worker(worker)).is_online:
                return True
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        ends = [watch.disconnect_time for watch in (await self._client.list_watches(worker=worker, limit=1)).items]
        return any(end is None or (now - end).total_seconds() <= _GONE_S for end in ends)

    # Two threads push requests and poll for results. Much of the cost of a page would be `httpx` and its tasks otherwise.

    def _push_always(self, run: str, call_soon: Callable[..., Any]) -> None:
        """Pushes what has come up since the last push."""
        is_last = False
        while not is_last:
            batch = [self._unsent.get()]
            while len(batch) < _MOST_REQUESTS and not self._unsent.empty():
                batch.append(self._unsent.get())
            is_last = None in batch
            messages = [message for message in batch if message is not None]
            if messages:
                self._push_or_fail(run, messages, call_soon)

    def _push_or_fail(self, run: str, batch: list[dict[str, Any]], call_soon: Callable[..., Any]) -> None:
        try:
            self._push(run, batch)
        except Exception as error:
            # All are refused if one is: each alone, so that only that one fails.
            is_of_one = len(batch) > 1 and isinstance(error, ApiError) and error.status in (400, 413, 422)
            for message in batch:
                if is_of_one:
                    self._push_or_fail(run, [message], call_soon)
                else:
                    _call(call_soon, self._fail, message["key"], error)

    def _push(self, run: str, batch: list[dict[str, Any]]) -> None:
        body = json.dumps(batch, ensure_ascii=False).encode()
        # Scrapy asks again for what has failed.
        self._push_calls.call("POST", f"/requestqueue/{run}", body, patience=self._timeout_s)

    def _fail(self, key: str, error: Exception) -> None:
        future = self._waiting.get(key)
        if future is not None and not future.done():
            log.warning("request is not taken run_id=%s error=%s", self._run, error)
            future.set_exception(DownloadFailedError(str(error)))

    def _poll_always(self, run: str, call_soon: Callable[..., Any]) -> None:
        """Fetches results. The next poll acknowledges them."""
        backoff = Backoff()
        while not self._is_closing:
            path = f"/requestqueue/{run}?wait=30&max=16&worker={self._worker_id}"
            if self._done:
                path += "&ack=" + ",".join(self._done)
            try:
                answer = self._poll_calls.call("GET", path, accept=MEDIA_TYPE, holds=self._done, timeout=60.0)
                blocks = read_deliveries(answer.content) if answer.status == 200 else []
            except BrokerUnavailable:
                return  # this process hung up
            except ApiError as error:
                _call(call_soon, self._over, f"no results can be fetched: {error}")
                return
            except Exception as error:
                log.warning("answer cannot be read run_id=%s error=%r", run, error)
                if self._poll_calls.wait_for_hang_up(backoff.next()):
                    return
                continue
            backoff.reset()
            self._done = [block.block_id for block in blocks]
            if blocks:
                _call(call_soon, self._arrived, blocks)
            elif answer.run_state in FINAL_STATES:
                _call(call_soon, self._over, f"the run is over: {answer.run_state}")
                return

    def _arrived(self, blocks: list[FinishedBlock]) -> None:
        for block in blocks:
            for result in block.results:
                future = self._waiting.get(result.request.get("key", ""))
                if future is not None and not future.done():
                    future.set_result(result)

    def _over(self, why: str) -> None:
        if not self._is_closing:
            log.error("%s run_id=%s", why, self._run)
            for key in list(self._waiting):
                self._fail(key, RuntimeError(why))
            engine = self.crawler.engine
            if engine is not None:
                asyncio.ensure_future(engine.close_spider_async(reason="webloom_run_over"))  # noqa: RUF006, the engine keeps it

    async def _stay(self, registration: dict[str, Any]) -> None:
        """Each fetch of messages is a heartbeat of the worker."""
        # Short pauses: a crawl that begins while this worker is gone for too long stops its run.
        backoff = Backoff(0.3, 2.0)
        while True:
            try:
                await self._client.fetch_messages(self._worker_id, wait=20)
                backoff.reset()
            except (ApiError, BrokerUnavailable, ProtocolError) as error:
                await asyncio.sleep(backoff.next())
                if isinstance(error, ApiError) and error.status == 404:
                    with contextlib.suppress(ApiError, BrokerUnavailable):
                        await self._client.register_worker({**registration, "runs": [self._run]})

    async def close(self) -> None:
        """Ends the run, and deletes its job; the history stays."""
        if self._is_closing:
            return
        self._is_closing = True
        atexit.unregister(self._close_at_exit)
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        await asyncio.to_thread(self._hang_up)
        if self._stay_task is not None:
            self._stay_task.cancel()
            await asyncio.gather(self._stay_task, return_exceptions=True)
        if self._run is not None:
            await self._try_to(self._end_run(self._run))
        if self._job is not None:
            await self._try_to(self._client.delete_job(self._job))
        await self._client.aclose()

    def _hang_up(self) -> None:
        self._unsent.put(None)
        self._push_calls.hang_up()
        self._poll_calls.hang_up()
        if self._poller is not None:
            # While it connects, it does not notice.
            self._poller.join(5)

    async def _end_run(self, run: str) -> None:
        if self._done:
            await self._client.acknowledge_blocks(run, {"blocks": self._done, "requests": []})
        await self._client.start_returned(run, {})
        try:
            await self._client.wait_for_run(run, timeout=1)
        except TimeoutError:  # Scrapy was stopped while downloads were under way
            await self._client.stop_run(run)

    def _close_at_exit(self) -> None:
        """As `close`, when the program ends without it: `scrapy shell` does. No event loop is left then."""
        self._is_closing = True
        self._hang_up()
        try:
            with Client(**self._access, retries=1) as client:
                if self._run is not None:
                    if self._done:
                        client.acknowledge_blocks(self._run, {"blocks": self._done, "requests": []})
                    client.start_returned(self._run, {})
                    try:
                        client.wait_for_run(self._run, timeout=5)
                    except TimeoutError:
                        client.stop_run(self._run)
                if self._job is not None:
                    client.delete_job(self._job)
        except (ApiError, BrokerUnavailable) as error:
            log.warning("could not end the run or delete its job error=%s", error)

    @staticmethod
    async def _try_to(call: Awaitable[None]) -> None:
        try:
            await call
        except (ApiError, BrokerUnavailable) as error:
            log.warning("could not end the run or delete its job error=%s", error)


def _call(call_soon: Callable[..., Any], function: Callable[..., None], *arguments: Any) -> None:
    """Has the thread of the spider call a function, unless its loop has ended."""
    with contextlib.suppress(RuntimeError):
        call_soon(function, *arguments)


def _with_credentials(proxy: str, header: str | None) -> str:
    """The proxy's URL with the credentials that Scrapy keeps in a header."""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not header or not header.lower().startswith("basic "):
        return proxy
    user, _, password = base64.b64decode(header[6:]).decode("latin-1").partition(":")
    parts = urlsplit(proxy)
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"))

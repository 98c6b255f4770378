"""A scheduler of Scrapy whose queue is in the broker: all processes of a spider share one crawl.

A request that a process has fetched is reported as done when its callback has returned, what the callback yielded is in the
broker, and its items have passed the pipelines. A process that dies before that loses nothing: the broker gives the request to
another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import json
import logging
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.exceptions import NotConfigured
from scrapy.extensions.feedexport import FeedExporter
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import build_from_crawler, load_object

from . import _scrapy_cookies as cookies
from ._scrapy_link import Block, Link, host_name
from ._scrapy_requests import Unserializable, extras_of, from_message, priority_of, to_message
from ._settings import Settings
from .client import FINAL_STATES, Client
from .errors import ApiError, WebloomError

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred
    from typing_extensions import Self

log = logging.getLogger("webloom.scrapy")

_GROUP = "scrapy"
#: In the meta of each request that has been in the queue, and of those made of it: they are no first requests any more.
_DELIVERED = "webloom_delivered"
#: Seconds between two looks for requests that have been finished.
_TICK_S = 0.1
#: Seconds for the last messages to the broker.
_LEAVE_S = 15.0


class _Entry:
    """A request of a block on its way through Scrapy. One that cannot be sent has no block, but blocks that wait for it."""

    __slots__ = ("block", "message", "outcome", "request", "waiters")

    def __init__(self, block: Block | None, message: dict[str, Any] | None, request: Request | None) -> None:
        self.block, self.message, self.request = block, message, request
        self.waiters: list[Block] = []
        self.outcome: int | None = None


class FleetScheduler(BaseScheduler):
    """Shares one crawl among all processes that run the spider: queue, priorities and seen requests are in the broker.

    Settings of the project beside `SCHEDULER`:

    - `WEBLOOM_BROKER`, `WEBLOOM_TOKEN`, `WEBLOOM_CA_FILE`: as the environment variables of these names, and before them. The
      token needs the role admin.
    - `WEBLOOM_CRAWL`: a name for the crawl. Unless set, the processes of a spider join the crawl that is not over, or begin one.
    - `WEBLOOM_BLOCK_SIZE`: requests that a process fetches together, at most; 16 unless set, 4 with a `DOWNLOAD_DELAY`.
    - `WEBLOOM_PROPERTIES`: properties of the job.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self.crawler = crawler
        self._settings = Settings.read(
            settings.get("WEBLOOM_BROKER"), settings.get("WEBLOOM_TOKEN"), settings.get("WEBLOOM_CA_FILE")
        )
        self._crawl = str(settings.get("WEBLOOM_CRAWL") or "")
        self._at_once = max(1, settings.getint("CONCURRENT_REQUESTS"))
        self._block_size = settings.getint("WEBLOOM_BLOCK_SIZE") or (4 if settings.getfloat("DOWNLOAD_DELAY") else 16)
        self._properties = {str(key): str(value) for key, value in settings.getdict("WEBLOOM_PROPERTIES").items()}
        self._seen: Any = _dupefilter(crawler)
        self._ready: list[tuple[int, int, _Entry]] = []
        self._number = 0
        self._in_hand: dict[Request, _Entry] = {}
        self._blocks: set[Block] = set()
        self._orphans = 0  # requests that cannot be sent, of the start
        self._starts: Counter[bytes] = Counter()
        self._link: Link | None = None
        self._run = ""
        self._has_started = self._is_over = False
        self._feeds: FeedExporter | None = None
        self._ticker: asyncio.TimerHandle | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    # What the engine calls.

    def open(self, spider: Spider) -> Deferred[None]:
        """Joins the crawl.

        Raises:
            ApiError: the broker refuses this process.
            BrokerUnavailable: there is none.
        """
        self.spider = spider
        return deferred_from_coro(self._open())

    def close(self, reason: str) -> Deferred[None]:
        """Sends what is left. The crawl goes on in the other processes, or when the spider is started again."""
        return deferred_from_coro(self._close(reason))

    def enqueue_request(self, request: Request) -> bool:
        """Takes a request. `False`: this process has seen it. If only another one has, the broker drops it later."""
        if not request.dont_filter and self._seen.request_seen(request):
            self._seen.log(request, self.spider)
            return False
        stats = self.crawler.stats
        stats.inc_value("scheduler/enqueued")
        try:
            message = to_message(request, self.spider, self._key(request), cookies.of(self.crawler, request))
        except Unserializable as why:
            self._keep(request, str(why))
            return True
        assert self._link is not None
        self._link.push(message)
        stats.inc_value("scheduler/enqueued/webloom")
        return True

    def next_request(self) -> Request | None:
        """The next request that this process has fetched, by priority."""
        self._settle()
        found = None
        while self._ready and found is None:
            entry = heapq.heappop(self._ready)[2]
            found = entry.request or self._request_of(entry)
            if found is not None:
                found.meta[_DELIVERED] = True
                self._in_hand[found] = entry
        self._want()
        stats = self.crawler.stats
        if found is not None:
            stats.inc_value("scheduler/dequeued")
        return found

    def has_pending_requests(self) -> bool:
        """Whether the crawl goes on, in whichever process."""
        return bool(self._ready) or not self._is_over

    def __len__(self) -> int:
        return len(self._ready)

    # Requests.

    def _key(self, request: Request) -> str:
        fingerprinter = self.crawler.request_fingerprinter
        if not request.dont_filter:
            return f"seen:{fingerprinter.fingerprint(request).hex()}"
        if request.meta.get("is_start_request") and _DELIVERED not in request.meta:
            # All processes yield the same first requests: the n-th of a kind is one and the same.
            print_ = fingerprinter.fingerprint(request)
            self._starts[print_] += 1
            return f"start:{self._starts[print_]}:{print_.hex()}"
        return f"again:{uuid.uuid4().hex}"

    def _keep(self, request: Request, why: str) -> None:
        """A request that cannot be sent is this process's own. It comes again with the page that led to it."""
        if not self.crawler.stats.get_value("scheduler/unserializable"):
            log.warning("a request cannot be shared and stays in this process url=%s reason=%s", request.url, why)
        self.crawler.stats.inc_value("scheduler/unserializable")
        entry = _Entry(None, None, request)
        at_work = {one.block for one in self._in_hand.values() if one.block is not None}
        entry.waiters = [block for block in self._blocks if block in at_work or block.waits_for]
        for block in entry.waiters:
            block.waits_for += 1
        self._orphans += not entry.waiters
        self._add(request.priority, entry)
        self._wake()

    def _request_of(self, entry: _Entry) -> Request | None:
        assert entry.message is not None
        try:
            request = from_message(entry.message, self.spider)
        except ValueError as error:
            log.error("request cannot be read url=%s reason=%s", entry.message.get("url"), error)
            self._finish(entry, f"the spider cannot read the request: {error}")
            return None
        cookies.put(self.crawler, request, extras_of(entry.message))
        return request

    def _add(self, priority: int, entry: _Entry) -> None:
        self._number += 1
        heapq.heappush(self._ready, (-priority, self._number, entry))

    def _settle(self) -> None:
        """Requests that have left Scrapy are finished."""
        slot = self.crawler.engine._slot
        if slot is None or not self._in_hand:
            return
        at_work = slot.inprogress
        done = [request for request in self._in_hand if request not in at_work]
        if done and self._feeds is not None:
            _flush(self._feeds)
        for request in done:
            self._finish(self._in_hand.pop(request), None)

    def _finish(self, entry: _Entry, error: str | None) -> None:
        if entry.block is None:
            for block in entry.waiters:
                block.waits_for -= 1
                self._close_if_done(block)
            self._orphans -= not entry.waiters
            return
        assert entry.message is not None
        id_ = entry.message["requestId"]
        status = entry.outcome or 0
        result: dict[str, Any] = {"requestId": id_, "status": status, "tries": 1, "time": 0}
        # The pace of a site is Scrapy's business: the broker must not judge the site by its answers.
        if error is not None or not status or status == 429 or status >= 500:
            said = error or (f"the site answered {status}" if status else "no answer")
            result.update(status=0, error={"kind": "other", "message": said, "retryable": False})
        entry.block.results[id_] = result
        self._close_if_done(entry.block)

    def _close_if_done(self, block: Block) -> None:
        if block.is_done and block in self._blocks:
            self._blocks.remove(block)
            assert self._link is not None
            self._link.finish(block)

    def _note_status(self, response: Any, request: Any) -> None:
        entry = self._in_hand.get(request)
        if entry is not None:
            entry.outcome = response.status

    # The link.

    def _want(self) -> None:
        if self._link is not None:
            room = self._at_once - len(self._ready)
            self._link.want(max(room, 0), not self._ready and len(self._in_hand) < self._at_once)

    def _wake(self) -> None:
        engine = self.crawler.engine
        # An engine that has not begun will ask by itself.
        if engine.running and engine._slot is not None:
            engine._slot.nextcall.schedule()

    def _arrived(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._blocks.add(block)
            for message in block.requests:
                self._add(priority_of(message), _Entry(block, message, None))
        self._wake()

    def _refused(self, message: bytes, why: str) -> None:
        """The broker does not take this request: its address has no host, or is too long."""
        self._keep(from_message(json.loads(message), self.spider), why)

    def _count(self, key: str, count: int) -> None:
        self.crawler.stats.inc_value(key, count)

    def _over(self, state: str) -> None:
        self._is_over = True
        if state in FINAL_STATES:
            log.info("crawl is over run_id=%s state=%s", self._run, state)
        else:
            log.info("this process is put out by an operator run_id=%s order=%s", self._run, state)
        if state != "success":
            # What was not begun is given back, unless the run is over.
            self._ready.clear()
            reason = f"webloom_run_{state}" if state in FINAL_STATES else f"webloom_{state}"
            engine = self.crawler.engine
            if engine.spider is not None:
                asyncio.ensure_future(engine.close_spider_async(reason=reason))  # noqa: RUF006, the engine keeps it
        self._wake()

    def _tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        self._settle()
        self._want()
        engine = self.crawler.engine
        if self._has_started or self._link is None:
            return
        # The spider has yielded all its first requests, and those that cannot be sent are finished.
        if engine._start is None and not self._orphans:
            self._has_started = True
            self._link.start_is_over()

    # The beginning and the end.

    async def _open(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise NotConfigured("webloom.scrapy.FleetScheduler needs Scrapy's asyncio reactor (TWISTED_REACTOR)") from None
        opening = self._seen.open()
        if opening is not None:
            await maybe_deferred_to_future(opening)
        self._run, properties, state = await asyncio.to_thread(self._join)
        log.info("crawl has a run run_id=%s broker=%s", self._run, self._settings.brokers[0])
        self.crawler.stats.set_value("webloom/run", self._run)

        def call_soon(*call: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(*call)

        self._link = Link(
            self._settings,
            self._run,
            properties["NodeGroup"],
            properties["FullClassName"],
            f"scrapy {self.spider.name} {host_name()}"[:100],
            -(-self._at_once // 4),
            call_soon,
            self._arrived,
            self._refused,
            self._count,
            self._over,
        )
        if state in FINAL_STATES:
            self._is_over = True
            log.info("crawl is over run_id=%s state=%s", self._run, state)
            return
        self._feeds = self.crawler.get_extension(FeedExporter)
        for signal in (signals.response_downloaded, signals.response_received):
            self.crawler.signals.connect(self._note_status, signal=signal)
        self._link.start()
        self._tick()

    def _join(self) -> tuple[str, dict[str, str], str]:
        """The run of the crawl, the properties of its job, and its state."""
        name = _job_name(self.spider.name, self._crawl)
        with Client(self._settings.brokers, token=self._settings.token, ca_file=self._settings.ca_file) as client:
            # Under one key a job makes one run, so a named crawl is not begun again.
            client.idempotency_key = self._crawl or None
            while True:
                job = next((job for job in client.all(client.list_jobs, name=name) if job.name == name), None)
                if job is None:
                    with _if_not("name-taken"):
                        job = client.create_job(self._job(name))
                if job is None:
                    continue
                self._clear(client, job.properties["NodeGroup"])
                with _if_not("still-running"):
                    run = client.trigger_job(job.id)
                    return run.identity, job.properties, run.state
                for run in client.all(client.list_runs, job_id=job.id):
                    if run.state not in FINAL_STATES:
                        return run.identity, job.properties, run.state
                time.sleep(0.1)

    def _job(self, name: str) -> dict[str, Any]:
        properties = {
            "FullClassName": f"scrapy:{self.spider.name[:80]}:{uuid.uuid4().hex[:8]}",
            "NodeGroup": f"scrapy-{uuid.uuid4().hex[:16]}",
            "NoWorker": "wait",
            "Overlap": "skip",
            "BlockSize": str(self._block_size),
            # Scrapy decides how sites are asked, how deep a crawl goes and which URLs are too long.
            "Delay": "0",
            "PerSite": "1024",
            "Robots": "ignore",
            "MaxRedirects": "0",
            "MaxUrlLength": "0",
            "MaxRepeatedSegments": "0",
            # A page is done when all that it led to is in the queue: a full queue would stop the crawl.
            "MaxPending": str(2**63 - 1),
            **self._properties,
        }
        return {"name": name, "group": _GROUP, "jobType": "block", "properties": properties}

    @staticmethod
    def _clear(client: Client, group: str) -> None:
        """Removes nodes that were processes of this crawl and died."""
        for node in client.list_nodes().items:
            if node.group == group and not node.is_online:
                with contextlib.suppress(ApiError):
                    client.remove_node(node.node_id)

    async def _close(self, reason: str) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        if self._link is None:
            return
        self._settle()
        if not await asyncio.to_thread(self._link.close, _LEAVE_S):
            log.warning("the broker has not got everything; what it has not got comes again run_id=%s", self._run)
        with contextlib.suppress(WebloomError):
            await asyncio.to_thread(self._sum_up, reason)
        self._seen.close(reason)

    def _sum_up(self, reason: str) -> None:
        """The counts of the whole crawl into the stats, and the stats of this process into the log of the run."""
        stats = self.crawler.stats
        with Client(self._settings.brokers, token=self._settings.token, ca_file=self._settings.ca_file, retries=1) as client:
            run = client.read_run(self._run)
            for key in ("total", "success", "error", "left"):
                stats.set_value(f"webloom/run/{key}", getattr(run, key))
            line = json.dumps({"reason": reason, **stats.get_stats()}, default=str)
            client.append_logs(self._run, [{"text": f"scrapy {host_name()} {line}"[:8_000], "level": "info"}])


def _job_name(spider: str, crawl: str) -> str:
    """The name of the job of a crawl: 50 characters at most."""
    name = f"scrapy {spider} {crawl}".strip()
    # Only cut, it could be the name of another crawl.
    return name if len(name) <= 50 else f"{name[:41]} {hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _dupefilter(crawler: Crawler) -> Any:
    """The filter of what this process has seen itself. It keeps nothing on disk: what was seen and not pushed would be lost."""
    kind = load_object(crawler.settings["DUPEFILTER_CLASS"])
    if kind is RFPDupeFilter:
        return kind(debug=crawler.settings.getbool("DUPEFILTER_DEBUG"), fingerprinter=crawler.request_fingerprinter)
    return build_from_crawler(kind, crawler)


def _flush(feeds: FeedExporter) -> None:
    """Items that were exported are in the file before their page counts as done."""
    for slot in feeds.slots:
        if slot.file is not None:
            with contextlib.suppress(OSError, ValueError):
                slot.file.flush()


@contextlib.contextmanager
def _if_not(kind: str) -> Any:
    """Passes over a refusal of this kind."""
    try:
        yield
    except ApiError as error:
        if error.type != kind:
            raise

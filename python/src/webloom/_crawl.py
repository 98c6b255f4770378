"""A run of a spider: push, poll, parse, acknowledge. It lives in the event loop of the worker."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import json
import logging
import re
import time
import traceback
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

from ._bulk import MEDIA_TYPE, FinishedBlock, read_deliveries
from ._handlers import Threads
from ._settings import Backoff
from .client import FINAL_STATES, AsyncClient
from .errors import ApiError, BrokerUnavailable
from .spider import Request, Response, Run, Spider, is_async
from .task import _log_sink, line_of

log = logging.getLogger("webloom.worker")

#: Requests and characters of one call; the broker takes 100,000 and 32 MiB.
MOST_REQUESTS, MOST_CHARACTERS = 5_000, 8 << 20
#: How often a page is tried that cannot be read, and seconds before the second try; then the pause doubles.
TRIES, FIRST_PAUSE_S = 3, 0.1
#: Lines of one call.
MOST_LINES = 500
# A header with more ids is too long for some proxies.
MOST_HOLDS = 200
_FIELD = re.compile(r"requests\[(\d+)\]")
# Those of asyncio are few, for the calls to the broker too, and keep the program alive.
_threads = Threads()


class RunOver(Exception):
    """The run is over or ending, or this worker leaves it."""


class Crawl:
    """One run. `stop` makes it finish the block in hand and leave the rest to another worker."""

    def __init__(self, client: AsyncClient, worker_id: str, spider: type[Spider], start: dict[str, Any], parallel: int) -> None:
        self.client, self.worker_id, self.parallel = client, worker_id, parallel
        self.run = Run.from_json(start)
        self.is_started = bool(start.get("startReturned"))
        self.spider_class = spider
        self.state: str | None = None
        self._queue = f"/requestqueue/{self.run.identity}"
        self._leaving = asyncio.Event()
        self._is_stopped = False
        self._is_over = asyncio.Event()
        self._failure: Exception | None = None
        self._in_hand: set[str] = set()
        self._lines: collections.deque[dict[str, Any]] = collections.deque(maxlen=10_000)
        self._one_at_a_time = asyncio.Lock()
        self._polling: asyncio.Task[tuple[list[FinishedBlock], str]] | None = None

    # From the worker.

    def stop(self) -> None:
        """Takes no further block."""
        self._is_stopped = True
        self._leaving.set()

    def ended(self, state: str) -> None:
        """The broker has said that the run is over, or this attempt of it: then it is in another state."""
        if state not in FINAL_STATES:
            return self.stop()
        self.state = state
        self._leaving.set()

    def poll_again(self) -> None:
        """Gives up a poll that waits. Blocks of an answer that is lost by that are delivered again."""
        if self._polling is not None:
            self._polling.cancel()

    async def carry_out(self) -> None:
        """Returns when the run is over, or after `stop`."""
        _log_sink.set(self._lines.append)
        talk = asyncio.create_task(self._send_lines_always())
        backoff = Backoff(1.0, 60.0)
        try:
            while not await self._is_over_for_us():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), backoff.next())
                    break
        finally:
            if self.state is not None and hasattr(self, "spider"):
                try:
                    await self._call_hook(self.spider.closed, self.state)
                except Exception:
                    self._note(traceback.format_exc())
            self._is_over.set()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(talk, 10)

    async def _is_over_for_us(self) -> bool:
        """Carries the run out. `False`: that failed after the start had returned, so the run is still this worker's."""
        try:
            self.spider = self.spider_class(self.run)
            work = [asyncio.create_task(self._poll_and_parse())]
            if not self.is_started:
                work.append(asyncio.create_task(self._start()))
            try:
                await asyncio.gather(*work)
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
        except RunOver:
            await self._learn_state()
        except Exception as error:
            log.exception("crawl failed run_id=%s", self.run.identity)
            self._note(f"the spider failed: {type(error).__name__}: {error}")
            if not self.is_started:
                with contextlib.suppress(ApiError, BrokerUnavailable):
                    await self._start_returned(f"{type(error).__name__}: {error}")
            elif self.state is None and not self._is_stopped:
                # The blocks that it had are delivered again.
                self._in_hand.clear()
                self._failure = None
                self._leaving.clear()
                return False
        return True

    async def _learn_state(self) -> None:
        """Waits for the state at the end. The broker refuses calls as soon as a run ends, which is before the end is stored."""
        while self.state is None and not self._is_stopped:
            try:
                state = (await self.client.read_run(self.run.identity)).state
                if state in FINAL_STATES:
                    self.state = state
                    return
            except BrokerUnavailable:
                pass
            except ApiError as error:
                if error.status == 404:
                    return
            await asyncio.sleep(0.2)

    # The first requests.

    async def _start(self) -> None:
        error: str | None = None
        batch: list[str] = []
        size = 0

        async def push() -> None:
            nonlocal batch, size
            if batch:
                taken, batch, size = batch, [], 0
                await self._store(taken, [])

        try:
            async for yielded in self._values(self.spider.start):
                request = Request(yielded) if isinstance(yielded, str) else yielded
                if not isinstance(request, Request):
                    raise TypeError(f"start() yields requests and URLs, not {type(request).__name__}")
                text = json.dumps(request.to_json(0), separators=(",", ":"))
                batch.append(text)
                size += len(text)
                if len(batch) >= MOST_REQUESTS or size >= MOST_CHARACTERS:
                    await push()
            await push()
        except (RunOver, asyncio.CancelledError):
            raise
        except Exception as failure:
            self._note(traceback.format_exc())
            error = f"{type(failure).__name__}: {failure}"
        await self._start_returned(error)
        self.is_started = True

    async def _start_returned(self, error: str | None) -> None:
        body = {} if error is None else {"error": error[:2_000]}
        await self._call("POST", f"/api/v1/runs/{self.run.identity}/start-returned", body=body)

    # Blocks.

    async def _poll_and_parse(self) -> None:
        blocks: asyncio.Queue[FinishedBlock | None] = asyncio.Queue(maxsize=self.parallel)
        parsers = [asyncio.create_task(self._parse_blocks(blocks)) for _ in range(self.parallel)]
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            while not self._leaving.is_set():
                poll = self._polling = asyncio.create_task(self._poll())
                await asyncio.wait([poll, leaving], return_when=asyncio.FIRST_COMPLETED)
                if poll.cancelled():
                    continue
                if not poll.done():
                    poll.cancel()
                    await asyncio.gather(poll, return_exceptions=True)
                    break
                found, state = poll.result()
                for block in found:
                    if block.block_id not in self._in_hand:
                        self._in_hand.add(block.block_id)
                        await blocks.put(block)
                if state in FINAL_STATES and not found:
                    self.state = state
                    break
            for _ in parsers:
                await blocks.put(None)
            await asyncio.gather(*parsers)
        finally:
            at_work = [task for task in (leaving, self._polling, *parsers) if task is not None]
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        if self.state is not None or self._leaving.is_set():
            raise RunOver

    async def _poll(self) -> tuple[list[FinishedBlock], str]:
        query = {"wait": 30, "max": max(2, 2 * self.parallel), "worker": self.worker_id}
        headers = {"Accept": MEDIA_TYPE}
        if len(self._in_hand) <= MOST_HOLDS:
            # The broker delivers again what was in an answer that was lost on its way.
            headers["Webloom-Holds"] = ",".join(self._in_hand)
        answer = await self._call("GET", self._queue, query=query, headers=headers)
        found = read_deliveries(answer.content) if answer.status_code == 200 else []
        return found, answer.headers.get("webloom-run-state", "")

    async def _parse_blocks(self, blocks: asyncio.Queue[FinishedBlock | None]) -> None:
        while (block := await blocks.get()) is not None:
            if self._leaving.is_set():
                continue  # it was not begun: another worker gets it
            try:
                await self._parse_block(block)
            except Exception as error:
                self._failure = error
                self._leaving.set()

    async def _parse_block(self, block: FinishedBlock) -> None:
        requests: list[str] = []
        for result in block.results:
            response = Response(result, self.run.site_encoding)
            try:
                callback = self.spider.callback_of(response)
            except AttributeError as error:
                self._note(f"page cannot be read url={response.request.url} reason={error}")
                continue
            function = getattr(callback, "__func__", callback)
            is_coroutine = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
            async with contextlib.nullcontext() if is_coroutine else self._one_at_a_time:
                requests += await self._parse_page(callback, response)
        try:
            await self._store(requests, [block.block_id])
        except ApiError as error:
            if not requests or error.status == 403:
                raise
            # It is acknowledged without them rather than parsed again and again.
            self._note(f"requests were left out block_id={block.block_id} count={len(requests)} reason={error}")
            await self._store([], [block.block_id])
        self._in_hand.discard(block.block_id)

    async def _parse_page(self, callback: Callable[[Response], Any], response: Response) -> list[str]:
        """The requests that follow from a page. A page that cannot be read is tried again, and then left out."""
        pause = FIRST_PAUSE_S
        for left in reversed(range(TRIES)):
            try:
                return await self._parse(callback, response)
            except Exception:
                if left == 0:
                    self._note(f"page cannot be read url={response.url}\n{traceback.format_exc()}")
            await asyncio.sleep(pause)
            pause *= 2
        return []

    async def _parse(self, callback: Callable[[Response], Any], response: Response) -> list[str]:
        requests: list[str] = []
        async for yielded in self._values(callback, response):
            if isinstance(yielded, Request):
                try:
                    requests.append(json.dumps(yielded.to_json(response.depth + 1), separators=(",", ":"), allow_nan=False))
                except (ValueError, TypeError) as error:
                    self._note(f"a request was left out url={response.url} reason={error}", "warning")
            elif yielded is not None:
                await self._call_hook(self.spider.item, yielded, response)
        return requests

    async def _values(self, function: Callable[..., Any], *arguments: Any) -> AsyncIterable[Any]:
        """What a method yields or returns, whichever kind it is."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            made = function(*arguments)
        else:
            made = await _threads.run(_first_values, function, arguments)
        if inspect.isawaitable(made):
            made = await made
        if isinstance(made, AsyncIterable):
            async for value in made:
                yield value
        elif isinstance(made, _Some):
            while True:
                for value in made.values:
                    yield value
                if made.error is not None:
                    raise made.error
                if made.rest is None:
                    break
                made = await _threads.run(_next_values, made.rest)
        elif made is not None:
            for value in _iterable(made):
                yield value

    async def _call_hook(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a method that may be a coroutine function."""
        if inspect.iscoroutinefunction(function):
            await function(*arguments)
        else:
            made = await _threads.run(function, *arguments)
            if inspect.isawaitable(made):
                await made

    # Calls.

    async def _store(self, requests: list[str], blocks: list[str]) -> None:
        """Acknowledges blocks together with what follows from them. If that is more than a call takes, the first parts are
        pushed before."""
        requests = list(dict.fromkeys(requests))
        while True:
            part, size = 0, 0
            while part < len(requests) and part < MOST_REQUESTS and size < MOST_CHARACTERS:
                size += len(requests[part])
                part += 1
            is_last = part == len(requests)
            now, requests = requests[:part], requests[part:]
            if blocks and is_last:
                named = ",".join(f'"{block}"' for block in blocks)
                await self._send_requests(f"{self._queue}/ack", '{"blocks":[' + named + '],"requests":[%s]}', now)
            elif now:
                await self._send_requests(self._queue, "[%s]", now)
            if is_last:
                return

    async def _send_requests(self, path: str, form: str, requests: list[str]) -> None:
        while True:
            try:
                await self._call("POST", path, raw=(form.replace("%s", ",".join(requests))).encode())
                return
            except ApiError as error:
                # One request that the broker does not take must not cost the others.
                found = _FIELD.search(error.field or "")
                if error.status not in (400, 413, 422) or found is None or int(found[1]) >= len(requests):
                    raise
                left_out = requests.pop(int(found[1]))
                self._note(f"a request was left out request={left_out[:300]} reason={error.detail}", "warning")

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """A call that is repeated while the broker is away."""
        if raw is not None:
            headers = {"Content-Type": "application/json"}
        while True:
            try:
                return await self.client._send(method, path, query, body, raw, headers)
            except BrokerUnavailable as error:
                log.warning("broker is away run_id=%s error=%s", self.run.identity, error)
            except ApiError as error:
                # A token that was withdrawn may come back. A standby answers 502 when the leader that had the call is lost.
                if error.status in (401, 408, 429) or error.status >= 500:
                    log.warning("broker is busy run_id=%s error=%s", self.run.identity, error)
                elif error.type in ("run-over", "not-found", "no-queue"):
                    raise RunOver from None
                else:
                    raise
            await asyncio.sleep(1)

    # The log of the run.

    def _note(self, text: str, level: Any = "error") -> None:
        for line in text.rstrip().splitlines():
            self._lines.append(line_of(line, level, time.time()))

    async def _send_lines_always(self) -> None:
        is_over = False
        while not is_over:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), 0.5)
            is_over = self._is_over.is_set()
            while self._lines:
                lines = [self._lines.popleft() for _ in range(min(len(self._lines), MOST_LINES))]
                try:
                    await self.client.append_logs(self.run.identity, lines)
                except BrokerUnavailable:
                    self._lines.extendleft(reversed(lines))
                    break
                except ApiError as error:
                    log.warning("lines of the log were refused run_id=%s error=%s", self.run.identity, error)


class _Some:
    """The next values of a generator that is no coroutine, and the generator if it may have more."""

    def __init__(self, values: list[Any], rest: Any, error: BaseException | None) -> None:
        self.values, self.rest, self.error = values, rest, error


def _iterable(made: Any) -> Iterable[Any]:
    return [made] if isinstance(made, (Request, str, dict)) or not isinstance(made, Iterable) else made


def _first_values(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    made = function(*arguments)
    if made is None or is_async(made):
        return made
    return _next_values(iter(_iterable(made)))


def _next_values(iterator: Any) -> _Some:
    values: list[Any] = []
    try:
        for value in iterator:
            values.append(value)
            if len(values) >= MOST_REQUESTS:
                return _Some(values, iterator, None)
    except Exception as error:
        return _Some(values, None, error)
    return _Some(values, None, None)

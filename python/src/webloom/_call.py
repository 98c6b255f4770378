"""One call of the REST API: its address, its body, whether it may be repeated, and what its answer means."""

from __future__ import annotations

import asyncio
import functools
import json
import time
import typing
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx

from . import models
from ._executors import HEADER, LOOK_S, PATIENCE_S, Executors, run_of
from ._model import decode, encode, format_instant
from ._settings import Backoff, Settings
from .errors import ApiError, BrokerUnavailable, ProtocolError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Seconds that a call may take beyond what it waits for on purpose.
TIMEOUT_S = 30.0


class Page(Protocol[T_co]):
    """A part of a list."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def next_cursor(self) -> str | None: ...


@functools.cache
def _type_named(text: str) -> Any:
    holder = type("Holder", (), {"__annotations__": {"it": text}})
    return typing.get_type_hints(holder, {**vars(models), "models": models})["it"]


def problem_of(answer: httpx.Response) -> ApiError:
    """The error that an answer is."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    after = answer.headers.get("Retry-After", "")
    retry_after = float(after) if after.isdigit() else None
    return ApiError(answer.status_code, problem if isinstance(problem, dict) else {"detail": answer.text[:500]}, retry_after)


class _Prepared:
    """A call that is ready to be sent, as often as it takes."""

    def __init__(self, calls: _Shared, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content: bytes | None):
        self.path = path
        self.method = method
        self.headers = httpx.Headers({"Accept": "application/json"}, encoding="utf-8")
        self.params: dict[str, str] = {}
        for name, value in (query or {}).items():
            if value is not None:
                self.params[name] = _text(value)
        self.content = content
        if content is not None:
            self.headers["Content-Type"] = "application/octet-stream"
        elif body is not None:
            self.headers["Content-Type"] = "application/json"
            self.content = json.dumps(encode(body), ensure_ascii=False, separators=(",", ":")).encode()
        if method == "POST" and path.endswith("/trigger"):
            # So that a repeated call makes no second run.
            self.headers["Idempotency-Key"] = calls.idempotency_key or uuid.uuid4().hex
        self.is_safe = (
            method in ("GET", "PUT", "DELETE") or "Idempotency-Key" in self.headers or path.startswith("/requestqueue/")
        )
        wait = self.params.get("wait")
        self.timeout = TIMEOUT_S + (float(wait) if wait else 0.0)
        self.tries = 0
        self.backoff = Backoff(0.1, 5.0)

    def failed(self, error: httpx.TransportError, retries: int) -> float:
        """The pause before the next try.

        Raises:
            BrokerUnavailable: there is none.
        """
        # Nothing was sent if there was no connection.
        if self.tries >= retries or not (self.is_safe or isinstance(error, httpx.ConnectError)):
            raise BrokerUnavailable(f"{self.method} {self.path}: {type(error).__name__}: {error}") from error
        self.tries += 1
        return self.backoff.next()

    def refused(self, answer: httpx.Response, retries: int) -> float | None:
        """The pause before the next try; `None`: this is the answer.

        Raises:
            ApiError: the broker refused it for good.
        """
        if answer.status_code < 400:
            return None
        problem = problem_of(answer)
        # After 502 and 504, which come from a standby or a proxy, the call may have been carried out.
        may_repeat = answer.status_code in (429, 503) or (self.is_safe and answer.status_code in (502, 504))
        if may_repeat and self.tries < retries:
            self.tries += 1
            return max(self.backoff.next(), min(problem.retry_after or 0.0, 10.0))
        raise problem


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return format_instant(value)
    return str(value)


class _Shared:
    def __init__(self, settings: Settings, retries: int) -> None:
        self.settings = settings
        self.retries = retries
        self.current = 0
        self.idempotency_key: str | None = None

    @property
    def url(self) -> str:
        """The address of the broker that is asked now."""
        return self.settings.brokers[self.current % len(self.settings.brokers)]

    @staticmethod
    def _part(text: str) -> str:
        if not str(text):
            raise ValueError("an id is expected, not an empty text")
        return quote(str(text), safe="")

    def _elsewhere(self) -> None:
        self.current += 1

    @staticmethod
    def _read(answer: httpx.Response, returns: str) -> Any:
        if answer.status_code == 204 or not answer.content:
            return None
        try:
            return decode(_type_named(returns), answer.json())
        except ValueError as error:
            raise ProtocolError(f"the answer of {answer.request.url.path} cannot be read: {error}") from error


class SyncCalls(_Shared):
    """How `Client` makes its calls."""

    def __init__(self, settings: Settings, retries: int, http: httpx.Client) -> None:
        super().__init__(settings, retries)
        self._http = http

    def _send(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None, content: bytes | None = None
    ) -> httpx.Response:
        call = _Prepared(self, method, path, query, body, content)
        while True:
            try:
                answer = self._http.request(
                    method,
                    self.url + path,
                    params=call.params or None,
                    headers=call.headers,
                    content=call.content,
                    timeout=call.timeout,
                )
                pause = call.refused(answer, self.retries)
                if pause is None:
                    return answer
            except httpx.TransportError as error:
                pause = call.failed(error, self.retries)
            self._elsewhere()
            time.sleep(pause)

    def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        returns: str,
    ) -> Any:
        return self._read(self._send(method, path, query, body, content), returns)

    def _none(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None, content: bytes | None = None
    ) -> None:
        self._send(method, path, query, body, content)

    def _text(self, method: str, path: str, *, query: Mapping[str, Any] | None = None) -> str:
        return self._send(method, path, query).text

    def _bytes(self, method: str, path: str, *, query: Mapping[str, Any] | None = None) -> bytes:
        return self._send(method, path, query).content

    def all(self, call: Callable[..., Page[T]], *arguments: Any, **query: Any) -> Iterator[T]:
        """All items of a list that comes in pages: `client.all(client.list_runs, state="failed")`."""
        cursor: str | None = None
        while True:
            page = call(*arguments, cursor=cursor, **query)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return


class AsyncCalls(_Shared):
    """How `AsyncClient` makes its calls."""

    def __init__(self, settings: Settings, retries: int, http: httpx.AsyncClient) -> None:
        super().__init__(settings, retries)
        self._http = http
        self._executors = Executors()
        self._trying: set[asyncio.Task[None]] = set()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        call = _Prepared(self, method, path, query, body, content)
        call.headers.update(headers or {})
        run = run_of(path)
        while True:
            executor = self._executors.of(run)
            asked = executor or self.url
            try:
                answering = self._http.request(
                    method,
                    asked + path,
                    params=call.params or None,
                    headers=call.headers,
                    content=call.content,
                    timeout=call.timeout,
                )
                answer = await (self._while_it_lives(executor, answering) if executor else answering)
                if executor and answer.status_code in (401, 403):
                    # The leader may know a newer token.
                    self._executors.tried(executor, False)
                    continue
                if run:
                    self._note_executor(run, asked, answer.headers.get(HEADER))
                pause = call.refused(answer, self.retries)
                if pause is None:
                    return answer
            except httpx.TransportError as error:
                if executor:
                    self._executors.tried(executor, False)
                pause = call.failed(error, self.retries)
            if not executor:
                self._elsewhere()
            await asyncio.sleep(pause)

    async def _while_it_lives(self, broker: str, answering: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """The answer of a broker. One that hangs would keep the call.

        Raises:
            httpx.ReadTimeout: it does not live any more.
        """
        task = asyncio.ensure_future(answering)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=LOOK_S)
                if done:
                    return task.result()
                if not await self._reaches(broker):
                    raise httpx.ReadTimeout(f"{broker} is silent")
        finally:
            task.cancel()

    async def _reaches(self, broker: str) -> bool:
        try:
            request = self._http.build_request("GET", broker + "/healthz", timeout=PATIENCE_S)
            # Something else may be at this address.
            request.headers.pop("Authorization", None)
            answer = await self._http.send(request)
        except httpx.TransportError:
            return False
        return answer.is_success

    def _note_executor(self, run: str, asked: str, named: str | None) -> None:
        broker = self._executors.answered(run, asked, named)
        if broker is not None:

            async def reach() -> None:
                self._executors.tried(broker, await self._reaches(broker))

            task = asyncio.ensure_future(reach())
            self._trying.add(task)
            task.add_done_callback(self._trying.discard)

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        returns: str,
    ) -> Any:
        return self._read(await self._send(method, path, query, body, content), returns)

    async def _none(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None, content: bytes | None = None
    ) -> None:
        await self._send(method, path, query, body, content)

    async def _text(self, method: str, path: str, *, query: Mapping[str, Any] | None = None) -> str:
        return (await self._send(method, path, query)).text

    async def _bytes(self, method: str, path: str, *, query: Mapping[str, Any] | None = None) -> bytes:
        return (await self._send(method, path, query)).content

    async def all(self, call: Callable[..., Awaitable[Page[T]]], *arguments: Any, **query: Any) -> AsyncIterator[T]:
        """All items of a list that comes in pages: `async for run in client.all(client.list_runs, state="failed")`."""
        cursor: str | None = None
        while True:
            page = await call(*arguments, cursor=cursor, **query)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

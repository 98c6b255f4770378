"""Calls to the broker from a thread. A crawl makes many, and `http.client` takes a quarter of the processor time of `httpx`."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ._settings import Backoff, Settings
from .errors import ApiError, BrokerUnavailable

log = logging.getLogger("webloom.scrapy")

#: Answers after which the same call may succeed later. A token that was withdrawn may come back.
_LATER = (401, 429, 500, 502, 503, 504)


class Answer(NamedTuple):
    """What the broker has answered."""

    status: int
    run_state: str
    content: bytes


class Calls:
    """One connection, for one thread. A call is repeated until it is answered, or until `end_at` or `hang_up`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tls = settings.tls() if settings.uses_tls() else None
        self._headers = {"Content-Type": "application/json", **settings.headers()}
        self._current = 0
        self._connection: http.client.HTTPConnection | None = None
        self._hung_up = threading.Event()
        self._end: float | None = None

    def end_at(self, seconds: float) -> None:
        """From now on calls give up after this time."""
        self._end = time.monotonic() + seconds

    def hang_up(self) -> None:
        """Ends a call that waits, from another thread, and all later ones."""
        self._hung_up.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def wait_for_hang_up(self, seconds: float) -> bool:
        """Waits at most this long for `hang_up`. Returns whether it was called."""
        return self._hung_up.wait(seconds)

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout: float = 30.0,
        patience: float | None = None,
        accept: str | None = None,
        holds: Sequence[str] | None = None,
    ) -> Answer:
        """Makes a call.

        Args:
            timeout: the seconds that one try may take.
            patience: the seconds after which the call is given up, between two tries.
            accept: the media type that is wanted.
            holds: of a poll: the blocks that have arrived and are not acknowledged. The broker delivers others again at once,
                whose answer was lost on its way.

        Raises:
            ApiError: the broker refused it for good.
            BrokerUnavailable: no broker answered until the end.
        """
        backoff = Backoff(0.1, 10.0)
        give_up = None if patience is None else time.monotonic() + patience
        more = {"Accept": accept, "Webloom-Holds": None if holds is None else ",".join(holds)}
        headers = {**self._headers, **{name: value for name, value in more.items() if value is not None}}
        while True:
            why: Exception
            if self._hung_up.is_set():
                raise BrokerUnavailable(f"{method} {path}: the connection was given up")
            try:
                status, run_state, content = self._try(method, path, body, headers, timeout)
                if status < 400:
                    return Answer(status, run_state, content)
                error = _problem(status, content)
                if status not in _LATER:
                    raise error
                why = error
                self._elsewhere()
            except (OSError, http.client.HTTPException) as broken:
                self.close()
                self._elsewhere()
                why = broken
            if backoff.tries == 3:
                log.warning("broker is away or busy path=%s error=%s", path.partition("?")[0], why)
            pause = backoff.next()
            is_over = any(end is not None and time.monotonic() + pause > end for end in (self._end, give_up))
            if is_over or self._hung_up.wait(pause):
                raise BrokerUnavailable(f"{method} {path}: {type(why).__name__}: {why}") from why

    def _elsewhere(self) -> None:
        """The next call goes to the next broker, if there are several: this one is away, or stands by."""
        if len(self._settings.brokers) > 1:
            self.close()
            self._current += 1

    def _try(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> tuple[int, str, bytes]:
        address = self._settings.brokers[self._current % len(self._settings.brokers)]
        if self._connection is None:
            self._connection = _connect(address, self._tls, timeout)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        else:
            self._connection.timeout = timeout
        self._connection.request(method, urlsplit(address).path + path, body, headers)
        # There may have been no socket yet that `hang_up` could shut down.
        if self._hung_up.is_set():
            raise ConnectionAbortedError("the connection was given up")
        answer = self._connection.getresponse()
        return answer.status, answer.headers.get("webloom-run-state") or "", answer.read()


def _connect(address: str, tls: Any, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=tls)
    return http.client.HTTPConnection(host, parts.port, timeout=timeout)


def _problem(status: int, content: bytes) -> ApiError:
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    return ApiError(status, problem if isinstance(problem, dict) else {"detail": content[:500].decode(errors="replace")})

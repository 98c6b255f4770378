"""The brokers that execute runs, as answers about these runs name them.

A client calls them directly, so that the leader need not pass its calls on. It does so only while it reaches them: else the calls
go where all others go.
"""

from __future__ import annotations

import ipaddress
import re
import time
from urllib.parse import urlsplit

#: The header that names the broker.
HEADER = "webloom-executor"
#: Seconds that a broker may need to answer a call that asks nothing.
PATIENCE_S = 3.0
#: Seconds between two looks whether a broker that owes an answer still lives.
LOOK_S = 5.0
#: After so many seconds a broker that was not reached is tried again.
_AGAIN_S = 60.0
#: The number of runs that are remembered.
_MOST = 10_000
_QUEUE = re.compile(r"/requestqueue/([0-9a-f]{32})(?:/|$)")


def run_of(path: str) -> str | None:
    """The run whose queue a call is about."""
    found = _QUEUE.match(path)
    return found[1] if found else None


class Executors:
    """Which broker executes which run, and whether this client reaches it."""

    def __init__(self) -> None:
        self._by_run: dict[str, str] = {}
        # Whether a broker was reached; a time: when it was not. `None`: it is being tried.
        self._brokers: dict[str, bool | float | None] = {}

    def of(self, run: str | None) -> str | None:
        """The broker to call about a run. `None`: the one to which all other calls go."""
        url = self._by_run.get(run) if run else None
        return url if url and self._brokers.get(url) is True else None

    def answered(self, run: str, asked: str, named: str | None) -> str | None:
        """A broker has answered a call about a run. Returns a broker that is to be tried: then call `tried`.

        Args:
            asked: the address that has answered.
            named: the broker that executes the run, by the header of the answer.
        """
        url = named.rstrip("/") if named else ""
        if not _is_usable(asked, url):
            self._by_run.pop(run, None)
            return None
        if len(self._by_run) >= _MOST:
            self._by_run.clear()
        self._by_run[run] = url
        known = self._brokers.get(url, 0.0)
        if known is True or known is None or (known and time.monotonic() - known < _AGAIN_S):
            return None
        self._brokers[url] = None
        return url

    def tried(self, url: str, is_reached: bool) -> None:
        """A broker was tried."""
        self._brokers[url] = True if is_reached else time.monotonic()


def _is_usable(asked: str, named: str) -> bool:
    """A client that uses TLS goes on to use it. A loopback address means the machine of the broker, which may be another one."""
    try:
        to, of = urlsplit(named), urlsplit(asked)
        is_as_safe = bool(to.hostname) and (to.scheme == "https" or to.scheme == of.scheme == "http")
    except ValueError:
        return False
    return is_as_safe and (_is_local(of.hostname) or not _is_local(to.hostname))


def _is_local(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False

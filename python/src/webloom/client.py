"""The whole REST API, for programs that block and for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from types import TracebackType

import httpx

from . import models
from ._calls import AsyncioCalls, Calls
from ._settings import Settings

#: The states in which a run is over.
FINAL_STATES = frozenset({"success", "failed", "stopped"})


class Client(Calls):
    """The REST API of a broker, with one method for each call.

    Bodies are models (`models.JobInput(name="nightly")`) or mappings with the names of the API
    (`{"name": "nightly", "jobType": "task"}`). Answers are models.

    Args:
        broker: the address of the broker, or several, one of which leads. Default: `WEBLOOM_BROKER`, else
            `http://127.0.0.1:55626`.
        token: a token. Default: `WEBLOOM_TOKEN`, else none.
        ca_file: certificates (PEM) of authorities that are trusted beside the usual ones. Default: `WEBLOOM_CA_FILE`.
        retries: how often a call is repeated while no broker answers or the one that does is busy. Calls that might do
            a thing twice are repeated only if nothing was sent.

    All calls raise `ApiError` if the broker refuses them, and `BrokerUnavailable` if there is no answer.
    """

    def __init__(
        self,
        broker: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        retries: int = 5,
    ) -> None:
        settings = Settings.read(broker, token, ca_file)
        verify = settings.tls() if settings.uses_tls() else True
        super().__init__(settings, retries, httpx.Client(headers=settings.headers(), verify=verify))

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def wait_for_run(self, identity: str, *, timeout: float | None = None) -> models.RunOutput:
        """The run, once it is over.

        Args:
            timeout: seconds to wait at most.

        Raises:
            TimeoutError: the run is not over by then.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        while True:
            run = self.read_run(identity)
            if run.state in FINAL_STATES:
                return run
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"run {identity} is {run.state} after {timeout} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)


class AsyncClient(AsyncioCalls):
    """As `Client`, for asyncio."""

    def __init__(
        self,
        broker: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        retries: int = 5,
    ) -> None:
        settings = Settings.read(broker, token, ca_file)
        verify = settings.tls() if settings.uses_tls() else True
        # Each crawl of a worker has a poll that waits, so no other call may wait for a connection.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        super().__init__(settings, retries, httpx.AsyncClient(headers=settings.headers(), verify=verify, limits=limits))

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def wait_for_run(self, identity: str, *, timeout: float | None = None) -> models.RunOutput:
        """The run, once it is over; see `Client.wait_for_run`."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        while True:
            run = await self.read_run(identity)
            if run.state in FINAL_STATES:
                return run
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"run {identity} is {run.state} after {timeout} s")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0)

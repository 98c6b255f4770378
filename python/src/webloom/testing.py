"""A broker of one's own, for tests."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .client import Client
from .errors import ConfigurationError

#: Seconds that a program may take until it says that it is ready.
START_S = 60.0


def find_binary() -> str:
    """The program `webloom`: `WEBLOOM_BINARY`, else the one in `PATH`.

    Raises:
        ConfigurationError: there is none.
    """
    named = os.environ.get("WEBLOOM_BINARY")
    if named:
        if not Path(named).is_file():
            raise ConfigurationError(f"WEBLOOM_BINARY is `{named}`, and there is no such file")
        return named
    found = shutil.which("webloom")
    if found is None:
        raise ConfigurationError("no program `webloom`: put it into PATH, or its path into WEBLOOM_BINARY")
    return found


class Program:
    """A `webloom` that runs until it is stopped."""

    def __init__(self, arguments: Sequence[str], until: str) -> None:
        self.arguments = list(arguments)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WEBLOOM_")}
        self.process = subprocess.Popen(
            [find_binary(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.ready_line = self._wait_for(until)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._new.put(line.rstrip("\n"))
        self._new.put(None)

    def _wait_for(self, text: str) -> str:
        end = time.monotonic() + START_S
        while True:
            try:
                line = self._new.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.kill()
                raise RuntimeError(f"webloom {self.arguments[0]} did not print `{text}`:\n" + "\n".join(self.lines[-30:]))
            if text in line:
                return line

    def stop(self) -> None:
        """Ends it as a service manager does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Ends it without a word."""
        self.process.kill()
        self.process.wait()


class Broker:
    """A broker on a port of its own on loopback, with a database of its own in a temporary folder.

    ```python
    with Broker() as broker:
        broker.client.create_job({"name": "sum", "jobType": "task", "task": {"handler": "sum"}})
    ```

    Args:
        arguments: more arguments for `webloom broker`, for example `["--token", "admin:0123456789abcdef"]`.
        token: what `client` sends.

    Attributes:
        url: its address. It stays the same over `kill` and `start`.
        client: a `Client` for it.

    Raises:
        ConfigurationError: there is no program `webloom`.
        RuntimeError: it does not start; the text has its last lines.
    """

    def __init__(self, arguments: Sequence[str] = (), *, token: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="webloom-"))
        self._arguments = list(arguments)
        self._agents: list[Program] = []
        self.program = self._start("127.0.0.1:0")
        self.url = self.program.ready_line.split()[-1]
        self.client = Client(self.url, token=token)

    def _start(self, listen: str) -> Program:
        database = str(self.folder / "webloom.db")
        return Program(["broker", "--listen", listen, "--database", database, *self._arguments], "listening on")

    def kill(self) -> None:
        """Kills it without a word."""
        self.program.kill()

    def start(self) -> None:
        """Starts it again, at the same address and with the same database."""
        self.program = self._start(self.url.partition("://")[2])

    def agent(self, *arguments: str) -> Program:
        """Starts an agent, which downloads pages for crawls. It may reach loopback."""
        folder = self.folder / f"agent-{len(self._agents)}"
        folder.mkdir()
        words = ["agent", "--broker", self.url, "--data-dir", str(folder), "--download-allow", "127.0.0.0/8", *arguments]
        agent = Program(words, "connected")
        self._agents.append(agent)
        return agent

    def close(self) -> None:
        """Stops the broker and its agents, and removes the database."""
        self.client.close()
        for agent in self._agents:
            agent.kill()
        self.program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

"""A Redis of one's own on loopback, without disk."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from types import TracebackType


class Redis:
    """Starts `redis-server` on a free port, unless it is not wanted."""

    def __init__(self, is_wanted: bool) -> None:
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        if not is_wanted:
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        program = shutil.which("redis-server")
        assert program is not None
        words = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", "/tmp"]
        words += ["--appendfsync", "everysec", "--appenddirname", f"webloom-bench-{self.port}"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "redis-server does not answer"
                time.sleep(0.05)

    def flush(self) -> None:
        """Deletes everything."""
        if self.process is not None:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"FLUSHALL\r\n")
                connection.recv(100)

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(f"/tmp/webloom-bench-{self.port}", ignore_errors=True)

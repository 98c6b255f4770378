"""Processes for functions that keep a processor busy: one for each such task at work, kept for the next ones."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from ._handlers import Handler, ended, run_in_thread
from .task import Attempt, RunLogHandler, _nothing


class Processes:
    """The processes of a worker. `run` is called in a thread for each task."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[tuple[Any, Connection]] = []
        self._all: set[Any] = set()
        self._is_closed = False
        self._lock = threading.Lock()

    def _take(self) -> tuple[Any, Connection]:
        with self._lock:
            while self._idle:
                process, connection = self._idle.pop()
                if process.is_alive():
                    return process, connection
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, logging.getLogger().level), name="webloom-task", daemon=True)
        process.start()
        theirs.close()
        with self._lock:
            self._all = {one for one in self._all if one.is_alive()} | {process}
            if self._is_closed:
                process.kill()
        return process, ours

    def run(self, handler: Handler, attempt: Attempt, finish: Callable[[Attempt, dict[str, Any]], None]) -> None:
        """Has a process carry out an attempt."""
        try:
            process, connection = self._take()
            lock = threading.Lock()  # a connection takes one message at a time

            def send(message: object) -> None:
                with lock, contextlib.suppress(OSError, ValueError):
                    connection.send(message)

            attempt.stop = process.kill
            connection.send(("run", handler.name, handler.function, handler.unpack, attempt.order))
            # Not before: a process that begins does not read yet, and whoever asked would wait for it.
            attempt.ask = lambda: send(("cancel", attempt.key, attempt.cancel_reason))
            if attempt.is_told:
                attempt.ask()
        except Exception as error:
            finish(attempt, ended(attempt, error))
            return
        try:
            while True:
                kind, value = connection.recv()
                if kind == "say":
                    attempt.say(value)
                elif kind == "line":
                    attempt.line(value)
                elif kind == "broken":
                    value = ended(attempt, RuntimeError(f"the process of the task cannot import its function: {value}"))
                    break
                else:
                    break
            # From now on the process may be another attempt's.
            attempt.ask = attempt.stop = _nothing
            with self._lock:
                self._idle.append((process, connection))
        except (EOFError, OSError):
            process.join(5)
            reason = attempt.cancel_reason
            value = ended(attempt, RuntimeError(f"the process of the task ended with code {process.exitcode}"))
            if reason is not None:
                value["state"], value["error"] = "cancelled", {"message": reason}
            connection.close()
        finish(attempt, value)

    def close(self) -> None:
        """Ends all of them. They ignore SIGTERM, so the program could not end while one of them is at work."""
        with self._lock:
            self._is_closed = True
            for process in self._all:
                process.kill()
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()


class _Remote(Attempt):
    """An attempt in the process that carries it out."""

    def __init__(self, order: dict[str, Any], send: Callable[[object], None]) -> None:
        super().__init__(order, lambda: None)
        self.send = send

    def say(self, progress: dict[str, Any]) -> None:
        self.send(("say", progress))

    def line(self, line: dict[str, Any]) -> None:
        self.send(("line", line))


def _serve(connection: Connection, level: int) -> None:
    """The body of a process."""
    # The worker ends it; a signal to the whole group must not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    root = logging.getLogger()
    root.setLevel(level)
    root.addHandler(RunLogHandler())
    lock = threading.Lock()

    def send(message: object) -> None:
        with lock:
            connection.send(message)

    current: list[_Remote] = []
    orders: list[tuple[Any, ...]] = []
    arrived = threading.Semaphore(0)

    def listen() -> None:
        while True:
            try:
                data = connection.recv_bytes()
            except (EOFError, OSError):
                os._exit(1)  # the worker is gone, and nobody waits for the result
            try:
                message = pickle.loads(data)
            except BaseException as error:  # the function cannot be imported here
                send(("broken", f"{type(error).__name__}: {error}"))
                continue
            if message[0] == "cancel":
                _, key, reason = message
                for attempt in current:
                    if attempt.key == key:
                        attempt.cancel(reason or "cancelled")
            else:
                # Here, so that a `cancel` that follows at once finds it.
                current[:] = [_Remote(message[-1], send)]
                orders.append(message)
                arrived.release()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        arrived.acquire()
        _, name, function, unpack, _ = orders.pop()
        handler = Handler.of(name, function, process=True, unpack=unpack)
        run_in_thread(handler, current[0], lambda _, report: send(("end", report)))

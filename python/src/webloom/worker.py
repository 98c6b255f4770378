"""A worker: functions and spiders that a broker calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ._crawl import Crawl
from ._engine import Engine, Hooks
from ._handlers import Handler, Threads, run_in_loop, run_in_thread
from ._outbox import Outbox
from ._processes import Processes
from ._settings import Settings
from .client import AsyncClient
from .errors import ConfigurationError
from .spider import Spider
from .task import Attempt, RunLogHandler

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=type[Spider])

log = logging.getLogger("webloom.worker")


class Worker:
    """Carries out tasks and crawls.

    ```python
    worker = Worker()

    @worker.task("mail.send")
    def send(to: str) -> None: ...

    worker.run()
    ```

    Args:
        broker: the address of the broker, or several, one of which leads. Default: `WEBLOOM_BROKER`, else
            `http://127.0.0.1:55626`.
        token: a token of role worker. Default: `WEBLOOM_TOKEN`, else none.
        ca_file: certificates (PEM) of authorities that are trusted beside the usual ones. Default: `WEBLOOM_CA_FILE`.
        name: for people, and for the order of the strategy `failover`; at most 50 characters. Default: the host's name.
        group: jobs can ask for workers of a group.
        version: jobs can ask for workers of a version.
        tags: what this worker can or has, at most 20; jobs can ask for them.
        slots: how many tasks it takes at a time.
        worker_id: the id of the worker, 32 hexadecimal digits. Default: the one in the outbox, else a random one.
        outbox: a file for results that the broker has not acknowledged yet. With it they survive the end of this program:
            the next one with the same file sends them. The broker takes a result only if it has not given the task to
            another worker meanwhile, which it does when the lease of the task is over. Default: none; results are then
            kept in memory, and sent until they are acknowledged.
        drain_timeout: seconds that tasks may go on after SIGTERM, SIGINT or `stop()`; then they are cancelled.
        log_level: the level of `logging` from which on records go to the log of the run, if the program has not
            configured `logging` itself.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    def __init__(
        self,
        broker: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        group: str | None = None,
        version: str | None = None,
        tags: Iterable[str] = (),
        slots: int = 16,
        worker_id: str | None = None,
        outbox: str | os.PathLike[str] | None = None,
        drain_timeout: float = 30.0,
        log_level: int = logging.INFO,
    ) -> None:
        if slots < 0:
            raise ConfigurationError("slots must not be negative")
        if worker_id is not None:
            try:
                worker_id = uuid.UUID(worker_id).hex
            except ValueError:
                raise ConfigurationError(f"the worker's id `{worker_id}` is no 32 hexadecimal digits") from None
        self.settings = Settings.read(broker, token, ca_file)
        self.slots = slots
        self.drain_timeout = drain_timeout
        self.log_level = log_level
        self.name = (name or socket.gethostname())[:50]
        self.worker_id = worker_id
        self._outbox_path = outbox
        self._facts: dict[str, Any] = {"name": self.name, "slots": slots, "process": uuid.uuid4().hex}
        for key, value in (("group", group), ("version", version), ("tags", list(tags))):
            if value:
                self._facts[key] = value
        self._handlers: dict[str, Handler] = {}
        self._spiders: dict[str, tuple[type[Spider], int]] = {}
        self._crawls: dict[str, Crawl] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._is_stopping = False
        self._stop_lock = threading.Lock()
        self.ready = threading.Event()
        """Set once the broker has confirmed what this worker watches."""

    def task(self, name: str, *, process: bool = False, unpack: bool = True) -> Callable[[F], F]:
        """Makes a function the task of a name.

        The function is called in a thread, a coroutine function in the event loop of `run`, which it must not block. If the
        arguments of the task are a JSON object, they are its keyword arguments; any other value is its only argument. A
        parameter that is annotated with `TaskContext` gets the context. What the function returns is the result: any
        JSON of at most 256 KiB. An exception fails the attempt; `PermanentError` fails it for good.

        Args:
            name: what jobs call it; at most 100 characters.
            process: call it in a process of its own, for work that keeps a processor busy. The function must be one that
                can be imported, and the program must start the worker under `if __name__ == "__main__":`.
            unpack: false: a JSON object is the only argument, too.

        Raises:
            ConfigurationError: the name is taken, or too long.
            TypeError: this is no function that can be a task.
        """

        def register(function: F) -> F:
            self._take_name(name)
            self._handlers[name] = Handler.of(name, function, process=process, unpack=unpack)
            return function

        return register

    def _take_name(self, name: str) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= 100:
            raise ConfigurationError(f"a name of 1 to 100 characters is expected, not {name!r}")
        if name in self._handlers or name in self._spiders:
            raise ConfigurationError(f"this worker has a task or a spider `{name}` already")

    def run(self) -> None:
        """Works until SIGTERM, SIGINT or an operator's order to drain; then it finishes what is in hand and returns.

        A second signal cancels what is in hand; then it returns within some seconds.

        Raises:
            WorkerRejected: the broker does not want this worker.
            ConfigurationError: nothing to do: there are neither tasks nor spiders. Or the broker does not take the name, the
                group, the version or the tags.
        """
        asyncio.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        signals = []
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                with contextlib.suppress(NotImplementedError):  # not on this system
                    loop.add_signal_handler(number, self._signalled)
                    signals.append(number)
        try:
            await self.serve()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._is_stopping:
            log.warning("second signal, tasks are cancelled")
            self.stop(0.0)
        else:
            log.info("signal received, draining")
            self.stop()

    def stop(self, timeout: float | None = None) -> None:
        """Takes nothing new; `run` returns when what is in hand is done. It may be called from any thread.

        Args:
            timeout: seconds after which tasks are cancelled. Default: `drain_timeout`.
        """
        with self._stop_lock:
            self._is_stopping = True
            engine = self._engine
        if engine is not None:
            self._stop_crawls()
            engine.drain(self.drain_timeout if timeout is None else timeout)

    def spider(self, name: str, *, parallel: int = 1) -> Callable[[S], S]:
        """Makes a class carry out the runs of a class name; see `Spider`.

        Args:
            name: the class that jobs name; at most 100 characters.
            parallel: blocks that are parsed at a time in one run. More than 1 helps callbacks that are coroutines.

        Raises:
            ConfigurationError: the name is taken, or too long.
            TypeError: this is no subclass of `Spider`.
        """

        def register(spider: S) -> S:
            if not (isinstance(spider, type) and issubclass(spider, Spider)):
                raise TypeError(f"the spider `{name}` is no subclass of webloom.Spider")
            if parallel < 1:
                raise ConfigurationError("parallel must be at least 1")
            self._take_name(name)
            self._spiders[name] = (spider, parallel)
            return spider

        return register

    def _stop_crawls(self) -> None:
        loop, crawls = self._loop, self._crawls
        if loop is not None and crawls:
            with contextlib.suppress(RuntimeError):
                for crawl in list(crawls.values()):
                    loop.call_soon_threadsafe(crawl.stop)

    async def serve(self) -> None:
        """As `run`, in an event loop that is there already, and without signals: call `stop` to end it.

        Cancelling it cancels the tasks in hand.
        """
        if not self._handlers and not self._spiders:
            raise ConfigurationError("this worker has neither tasks nor spiders")
        if self._engine is not None:
            raise ConfigurationError("this worker runs already")
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # A process of a task imports the program. It must not become a worker too, at which the task never begins.
            raise ConfigurationError(
                'start the worker under `if __name__ == "__main__":`: the process of a task imports this program'
            )
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        outbox = None if self._outbox_path is None else Outbox(self._outbox_path)
        self.worker_id = self.worker_id or (outbox.worker_id if outbox else uuid.uuid4().hex)
        threads, processes = Threads(), Processes()
        at_work: set[asyncio.Task[None]] = set()

        def begin(attempt: Attempt) -> None:
            handler = self._handlers[attempt.order["handler"]]
            if handler.is_async:
                loop.call_soon_threadsafe(begin_here, handler, attempt)
            elif handler.in_process:
                threads.submit(lambda: processes.run(handler, attempt, engine.finish))
            else:
                threads.submit(lambda: run_in_thread(handler, attempt, engine.finish), handler.is_short)

        def begin_here(handler: Handler, attempt: Attempt) -> None:
            task = loop.create_task(run_in_loop(handler, attempt, engine.finish))
            at_work.add(task)
            task.add_done_callback(at_work.discard)

        def call_here(call: Callable[..., Any], *arguments: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(call, *arguments)

        def start_here(value: dict[str, Any]) -> None:
            identity, known = value["identity"], self._spiders.get(value["className"])
            if identity in self._crawls:
                if self._crawls[identity].run.attempt < value.get("attempt", 1):
                    self._crawls[identity].stop()  # that attempt is over; the broker repeats the order
                return
            if known is None or self._is_stopping:
                return  # it is the next worker's
            assert self.worker_id is not None
            crawl = Crawl(client, self.worker_id, known[0], value, known[1])
            self._crawls[identity] = crawl
            engine.hold_run(identity)
            task = loop.create_task(crawl.carry_out(), name=f"crawl {identity}")
            at_work.add(task)

            def done(task: asyncio.Task[None]) -> None:
                at_work.discard(task)
                self._crawls.pop(identity, None)
                engine.let_go(identity)

            task.add_done_callback(done)

        def ended_here(value: dict[str, Any]) -> None:
            crawl = self._crawls.get(value["identity"])
            if crawl is not None:
                crawl.ended(value["state"])

        def lost_here() -> None:
            # A broker that hangs would keep their polls for a minute.
            if len(self.settings.brokers) > 1:
                client._elsewhere()
                for crawl in self._crawls.values():
                    crawl.poll_again()

        hooks = Hooks(
            watch=lambda: {"classNames": sorted([*self._handlers, *self._spiders]), "worker": self._facts},
            knows=self._handlers.__contains__,
            begin=begin,
            start=lambda value: call_here(start_here, value),
            ended=lambda value: call_here(ended_here, value),
            drain=self._drained,
            ready=self.ready.set,
            lost=lambda: call_here(lost_here),
            over=lambda: call_here(over.set),
        )
        client = AsyncClient(self.settings.brokers, token=self.settings.token, ca_file=self.settings.ca_file)
        self._loop = loop
        engine = Engine(self.settings, self.worker_id, self.name, self.slots, hooks, outbox)
        sink = RunLogHandler()
        root = logging.getLogger()
        if not root.handlers:
            logging.basicConfig(level=self.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
            logging.getLogger("httpx").setLevel(max(logging.WARNING, self.log_level))
        root.addHandler(sink)
        with self._stop_lock:
            self._engine = engine
            is_stopping = self._is_stopping
        engine.begin()
        if is_stopping:
            self.stop()
        try:
            await over.wait()
        except asyncio.CancelledError:
            engine.drain(0.0)
            await asyncio.wait_for(over.wait(), 10)
            raise
        finally:
            root.removeHandler(sink)
            processes.close()
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)
            await client.aclose()
            self._loop = None
            with self._stop_lock:
                self._engine, self._is_stopping = None, False
            self.ready.clear()
        if engine.error is not None:
            raise engine.error

    def _drained(self, reason: str) -> None:
        log.info("drain asked for by the broker reason=%s", reason)
        self.stop()

"""Checks a worker of tasks or a node, in any language, against what docs/protocol.md demands.

```sh
python -m webloom.conformance worker --quick 'sum=[1, 2]' --slow 'walk={"steps": 3}' --long 'walk={"steps": 600}' -- ./worker
```

It starts a broker of its own (the program `webloom` in PATH, or that of WEBLOOM_BINARY) and, for each check, the worker. The
worker finds the broker in the environment variable WEBLOOM_BROKER. Between the two is a proxy that loses answers and refuses
calls. The worker must have three tasks, which the arguments name with what they get as JSON:

- `--quick`: ends at once, with success.
- `--slow`: takes 2 to 5 seconds, and ends with success.
- `--long`: takes a minute or more, and ends when it is cancelled.

The word `worker` may be left out. A node needs no more than its command:

```sh
python -m webloom.conformance node -- ./node
```
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .client import FINAL_STATES
from .errors import ApiError
from .testing import Broker

__all__ = ["CHECKS", "Kit", "Violation", "main"]

T = TypeVar("T")
#: Seconds that anything may take.
PATIENCE_S = 60.0
# A worker may break a connection that was silent for so long, so a slow task must be shorter.
_SETTINGS = ["--grace", "500", "--worker-offline", "10000"]


class Violation(Exception):
    """The worker does not do what the protocol demands."""


class Proxy:
    """Between the worker and the broker: it loses answers, refuses calls and breaks connections."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition("://")[2].partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        #: While it is set, what the worker sends is lost.
        self.loses_calls = threading.Event()
        #: While it is set, what the broker sends is lost.
        self.loses_answers = threading.Event()
        self._status = 0
        self.refused = self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self, status: int) -> None:
        """Answers each call so, also a WebSocket's, until `pass_on`."""
        self.refused, self._status = 0, status
        self.cut()

    def pass_on(self) -> None:
        """Connections begin anew, and nothing is in their way."""
        self._status = 0
        self.cut()
        self.loses_calls.clear()
        self.loses_answers.clear()

    def cut(self) -> None:
        """Breaks all connections."""
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Ends it."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._status:
            with contextlib.suppress(OSError), client:
                self._answer(client, self._status)
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        self._pairs.append((client, server))
        threading.Thread(target=self._pump, args=(server, client, self.loses_answers), daemon=True).start()
        self._pump(client, server, self.loses_calls)

    def _answer(self, client: socket.socket, status: int) -> None:
        client.settimeout(5)
        with client.makefile("rb") as call:
            length = 0
            while (line := call.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            call.read(length)
        body = json.dumps({"type": "/problems/conformance", "title": "refused by the proxy", "status": status}).encode()
        head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n"
        again = "" if status == 401 else "Retry-After: 1\r\n"
        client.sendall(f"{head}{again}Connection: close\r\n\r\n".encode() + body)
        self.refused += 1

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, lose: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not lose.is_set():
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Kit:
    """A broker, and the worker that is checked.

    Args:
        command: starts the worker.
        tasks: `quick`, `slow` and `long`, each with the name of a task and its arguments.
    """

    def __init__(self, broker: Broker, command: Sequence[str], tasks: dict[str, tuple[str, Any]]) -> None:
        self.broker, self.command, self.tasks = broker, list(command), tasks
        self.proxy: Proxy
        self.process: subprocess.Popen[bytes]
        self.worker_id = ""

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """The worker, connected."""
        self.proxy, self.worker_id = Proxy(self.broker.url), ""
        known = {worker.id for worker in self.broker.client.all(self.broker.client.list_workers)}
        names = {name for name, _ in self.tasks.values()}
        with tempfile.TemporaryFile() as output:
            self.process = subprocess.Popen(
                self.command,
                env={**os.environ, "WEBLOOM_BROKER": self.proxy.url},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

            def connected() -> str:
                if self.process.poll() is not None:
                    raise Violation(f"the worker ended with {self.process.returncode} before it watched its tasks")
                for worker in self.broker.client.all(self.broker.client.list_workers):
                    if worker.id not in known and worker.is_online and names <= set(worker.class_names):
                        return worker.id
                return ""

            try:
                wanted = f"the worker does not watch {', '.join(sorted(names))}. It must connect to WEBLOOM_BROKER"
                self.worker_id = self.wait(connected, wanted)
                yield
            except Violation as error:
                output.seek(0)
                said = output.read()[-2000:].decode(errors="replace").strip()
                raise Violation(f"{error}" + (f"\n--- the worker's output ---\n{said}" if said else "")) from None
            finally:
                self.process.kill()
                self.process.wait()
                self.proxy.close()
                # What comes next must not be given to a worker that is gone.
                if self.worker_id:
                    with contextlib.suppress(ApiError):
                        self.broker.client.forget_worker(self.worker_id, force=True)

    def run(self, kind: str, **settings: Any) -> str:
        """Triggers a task; the id of the run."""
        handler, arguments = self.tasks[kind]
        name = f"{kind} {time.monotonic_ns()}"
        task = {"handler": handler, "noWorker": "wait", "lease": 30_000, **settings}
        job = self.broker.client.create_job({"name": name, "jobType": "task", "task": task})
        return self.broker.client.trigger_job(job.id, {"arguments": arguments}).identity

    def begun(self, run: str) -> None:
        """Waits until the worker has reported that it has the task."""

        def is_reported() -> bool:
            return any(instance.state == "running" for instance in self.broker.client.list_instances(run).items)

        self.wait(is_reported, "a task that takes longer than a second must be reported as `accepted` or `running`")

    def succeeds(self, run: str, complaint: str) -> None:
        """The run ends well, with its first attempt."""

        def outcome() -> tuple[str, int, str] | None:
            is_gone = self.process.poll() is not None
            now = self.broker.client.read_run(run)
            attempt = max((instance.attempt for instance in self.broker.client.list_instances(run).items), default=0)
            is_over = now.state in FINAL_STATES or attempt > 1 or is_gone
            return (now.state, attempt, now.reason or "") if is_over else None

        state, attempt, reason = self.wait(outcome, f"{complaint}. The worker did not report how its task ended")
        if state != "success" or attempt != 1:
            raise Violation(f"{complaint}. The run is {state} with attempt {attempt}. {reason}".rstrip())

    def leaves(self, complaint: str) -> None:
        """The worker ends by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE_S)
            return
        raise Violation(complaint)

    def wait(self, condition: Callable[[], T | None], complaint: str) -> T:
        """What the condition returns as soon as it is true."""
        end = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if time.monotonic() > end:
                raise Violation(complaint)
            time.sleep(0.05)
        return found


def hello(kit: Kit) -> None:
    """The worker connects, watches its tasks, and carries out one."""
    with kit.worker():
        kit.succeeds(kit.run("quick"), "the quick task must succeed")


def many(kit: Kit) -> None:
    """Of thirty tasks at once each is carried out once."""
    with kit.worker():
        for run in [kit.run("quick") for _ in range(30)]:
            kit.succeeds(run, "each task must succeed once. Answer `refused` if no slot is free, or say fewer `slots`")


def lease(kit: Kit) -> None:
    """The worker renews the lease of a task that takes longer than it."""
    with kit.worker():
        kit.succeeds(kit.run("slow", lease=1_500), "send a heartbeat that names the task every third of its lease")


def cancel(kit: Kit) -> None:
    """A task that is cancelled ends, and the worker says so."""
    with kit.worker():
        run = kit.run("long")
        kit.begun(run)
        kit.broker.client.stop_run(run)

        def is_free() -> bool:
            return all(task.identity != run for task in kit.broker.client.read_worker(kit.worker_id).tasks)

        kit.wait(is_free, "the task goes on after `cancel`. End it, and report `cancelled`")
        kit.succeeds(kit.run("quick"), "after a `cancel` the worker must take tasks again")


def lost_answer(kit: Kit) -> None:
    """A last report whose answer is lost is sent again until it is settled."""
    with kit.worker():
        run = kit.run("slow")
        kit.begun(run)
        kit.proxy.loses_answers.set()
        kit.succeeds(run, "a task goes on while answers are lost")
        kit.proxy.pass_on()

        def is_settled() -> bool:
            return all(task.identity != run for task in kit.broker.client.read_worker(kit.worker_id).tasks)

        kit.wait(is_settled, "the worker still names a task whose end it has reported. Send the last report until `settled`")
        kit.succeeds(kit.run("quick"), "after a lost connection the worker must connect again and take tasks")


def _refused(status: int, why: str) -> Callable[[Kit], None]:
    def check(kit: Kit) -> None:
        with kit.worker():
            run = kit.run("slow")
            kit.begun(run)
            kit.proxy.refuse(status)
            kit.wait(
                lambda: kit.proxy.refused >= 2 or kit.process.poll() is not None, f"the worker does not try again after {status}"
            )
            if kit.process.poll() is not None:
                raise Violation(f"the worker ended because of {status}. {why}")
            kit.proxy.pass_on()
            kit.succeeds(run, f"the task must go on, and its result must arrive after {status}. {why}")

    check.__doc__ = f"Calls that are answered {status} are made again, and the task goes on."
    return check


def killed_broker(kit: Kit) -> None:
    """The broker is killed while a task is at work, and gets its result when it is there again."""
    with kit.worker():
        run = kit.run("slow")
        kit.begun(run)
        kit.broker.kill()
        kit.broker.start()
        kit.succeeds(run, "keep the task and its last report while the broker is away, and name it in `watch`")


def drain(kit: Kit) -> None:
    """A worker that is drained finishes its task and leaves."""
    with kit.worker():
        run = kit.run("slow")
        kit.begun(run)
        kit.broker.client.drain_worker(kit.worker_id, {"reason": "conformance"})
        kit.succeeds(run, "on `drain` finish what is in hand")
        kit.leaves("on `drain` disconnect and end when all that was reported is settled")


def terminate(kit: Kit) -> None:
    """A worker that gets SIGTERM finishes its task, reports it and ends."""
    with kit.worker():
        run = kit.run("slow")
        kit.begun(run)
        kit.process.send_signal(signal.SIGTERM)
        kit.succeeds(run, "a worker that ends sends `watch` with `slots` 0 and finishes what is in hand")
        kit.leaves("the worker must end after SIGTERM, when all that was reported is settled")


def kicked(kit: Kit) -> None:
    """A worker that is put out does not come back."""
    with kit.worker():
        kit.broker.client.kick_worker(kit.worker_id, {"reason": "conformance"})
        kit.leaves("on `kicked` stop everything, do not connect again, and end")


CHECKS: dict[str, Callable[[Kit], None]] = {
    "hello": hello,
    "many": many,
    "lease": lease,
    "cancel": cancel,
    "lost-answer": lost_answer,
    "429": _refused(429, "Wait as long as `Retry-After` says"),
    "503": _refused(503, "Wait as long as `Retry-After` says"),
    "401": _refused(401, "A token that was right before may come back"),
    "killed-broker": killed_broker,
    "drain": drain,
    "terminate": terminate,
    "kicked": kicked,
}


def _task(text: str) -> tuple[str, Any]:
    name, _, arguments = text.partition("=")
    try:
        return name, json.loads(arguments) if arguments else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=JSON: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checks; 0 if the worker, or the node, passes all of them."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["node"]:
        # It takes the proxy of this module.
        from . import _conformance_node

        return _conformance_node.main(words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m webloom.conformance",
        description="Checks a worker of tasks in any language; `python -m webloom.conformance node --help`: a node.",
    )
    for kind, help_ in (
        ("quick", "a task that ends at once"),
        ("slow", "one that takes 2 to 5 s"),
        ("long", "one that takes a minute or more"),
    ):
        parser.add_argument(f"--{kind}", type=_task, required=True, metavar="NAME=JSON", help=f"{help_}, and its arguments")
    parser.add_argument("--check", action="append", choices=list(CHECKS), help="only this check; may be repeated")
    parser.add_argument("command", nargs="+", help="starts the worker, which finds the broker by WEBLOOM_BROKER")
    options = parser.parse_args(words[1:] if words[:1] == ["worker"] else words)
    tasks = {kind: getattr(options, kind) for kind in ("quick", "slow", "long")}
    failed = 0
    with Broker(_SETTINGS) as broker:
        kit = Kit(broker, options.command, tasks)
        for name in options.check or CHECKS:
            try:
                CHECKS[name](kit)
            except Violation as error:
                failed += 1
                print(f"FAILED {name}: {CHECKS[name].__doc__}\n  {error}", flush=True)
            else:
                print(f"ok     {name}: {CHECKS[name].__doc__}", flush=True)
    print(
        f"{failed} of {len(options.check or CHECKS)} checks failed: see docs/protocol.md, 4" if failed else "the worker conforms"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

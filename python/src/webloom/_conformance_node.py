"""Checks a node, in any language, against what docs/protocol.md demands: `python -m webloom.conformance node -- ./node`."""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import http.server
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from . import models
from .conformance import PATIENCE_S, Proxy, Violation
from .testing import Broker

T = TypeVar("T")
_SETTINGS = ["--grace", "500", "--node-offline", "10000", "--worker-offline", "3600000"]
#: Bytes of a body that a node may report; the page `/large` has more.
_MAX_BODY = 100_000


class Site(http.server.ThreadingHTTPServer):
    """What the node downloads. It counts, and can keep the node waiting."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Pages)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.hits: collections.Counter[str] = collections.Counter()
        #: When each request came (monotonic).
        self.times: list[float] = []
        #: Pages under `/held/` are answered once it is set.
        self.gate = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The node may break its connections."""


class _Pages(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/robots.txt":
            self.server.times.append(time.monotonic())
            self.server.hits[self.path] += 1
        kind = self.path.split("/")[1]
        if kind == "held":
            self.server.gate.wait(PATIENCE_S)
        elif kind == "slow":
            time.sleep(1)
        text = f"{self.command} {self.path} {self.headers.get('X-Conformance', '')} {body.decode()}".encode()
        if kind == "large":
            text = b"x" * (2 * _MAX_BODY)
        self.send_response(404 if kind in ("missing", "robots.txt") else 200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text) * (2 if kind == "cut" else 1)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


class NodeKit:
    """A broker, a site, and the node that is checked, for one check.

    Args:
        command: starts the node.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.broker: Broker
        self.site: Site
        self.proxy: Proxy
        self.process: subprocess.Popen[bytes]
        self.node_id = ""

    @contextlib.contextmanager
    def node(self) -> Iterator[None]:
        """The node, connected."""
        with Broker(_SETTINGS) as self.broker, tempfile.TemporaryFile() as output, Site() as self.site:
            self.proxy, self.node_id = Proxy(self.broker.url), ""
            # It takes part in nothing; a run needs a worker.
            self.broker.client.register_worker(
                {"workerId": "0" * 31 + "1", "classNames": ["conformance"], "worker": {"slots": 0}}
            )
            environment = {**os.environ, "WEBLOOM_BROKER": self.proxy.url}
            self.process = subprocess.Popen(
                self.command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

            def connected() -> str:
                return next((node.node_id for node in self.broker.client.list_nodes().items if node.is_online), "")

            try:
                self.node_id = self.wait(connected, "no node is there. It must connect, or send heartbeats, to WEBLOOM_BROKER")
                yield
            except Violation as error:
                output.seek(0)
                said = output.read()[-2000:].decode(errors="replace").strip()
                raise Violation(f"{error}" + (f"\n--- the node's output ---\n{said}" if said else "")) from None
            finally:
                self.site.gate.set()
                self.process.kill()
                self.process.wait()
                self.proxy.close()
                self.site.shutdown()

    def crawl(self, *requests: str | dict[str, Any], **properties: str) -> str:
        """Has the node download these paths of the site, or whole requests; the id of the run."""
        settings = {
            "FullClassName": "conformance",
            "BlockSize": "10",
            "RetryDownload": "0",
            "MaxBody": str(_MAX_BODY),
            **properties,
        }
        job = {"name": f"conformance {time.monotonic_ns()}", "jobType": "block", "properties": settings}
        run = self.broker.client.trigger_job(self.broker.client.create_job(job).id).identity
        whole = [{"url": self.site.url + each} if isinstance(each, str) else each for each in requests]
        self.broker.client.push_requests(run, whole)
        self.broker.client.start_returned(run, {})
        return run

    def outcomes(self, run: str, count: int, complaint: str) -> dict[str, models.Outcome]:
        """What the node reported of each path, once it has reported so many."""

        def reported() -> dict[str, models.Outcome]:
            blocks = self.broker.client.all(lambda cursor=None: self.broker.client.list_results(run, cursor=cursor))
            return {urlsplit(outcome.request.url).path: outcome for block in blocks for outcome in block.results}

        def enough() -> dict[str, models.Outcome] | None:
            found = reported()
            return found if len(found) >= count else None

        return self.wait(enough, f"{complaint}. Of {count} requests {{}} are reported", lambda: len(reported()))

    def is_asked(self, path: str) -> None:
        """Waits until the node has sent this request."""
        self.wait(lambda: self.site.hits[path], f"the node does not request {path}")

    def is_free(self, complaint: str) -> None:
        """Waits until the broker takes the node for one that holds no block."""
        self.wait(lambda: self.broker.client.read_node(self.node_id).holding == 0, complaint)

    def works(self, complaint: str) -> None:
        """The node downloads another page."""
        path = f"/after/{time.monotonic_ns()}"
        outcome = self.outcomes(self.crawl(path), 1, complaint)[path]
        if outcome.status != 200:
            raise Violation(f"{complaint}. The page is reported with status {outcome.status} and error {outcome.error}")

    def once(self, *paths: str) -> None:
        """Each of these paths was downloaded once."""
        for path in paths:
            if self.site.hits[path] != 1:
                raise Violation(f"{path} was downloaded {self.site.hits[path]} times. Send the report again, not the request")

    def wait(self, condition: Callable[[], T | None], complaint: str, detail: Callable[[], Any] = str) -> T:
        """What the condition returns as soon as it is true."""
        end = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if self.process.poll() is not None:
                raise Violation(f"the node ended with {self.process.returncode}. " + complaint.format(detail()))
            if time.monotonic() > end:
                raise Violation(complaint.format(detail()))
            time.sleep(0.05)
        return found


def hello(kit: NodeKit) -> None:
    """The node connects, and downloads a page."""
    with kit.node():
        outcome = kit.outcomes(kit.crawl("/page"), 1, "the page must be reported")["/page"]
        if outcome.status != 200 or not base64.b64decode(outcome.content).startswith(b"GET /page "):
            raise Violation(f"the page came with 200, and is reported with {outcome.status} and the body {outcome.content}")
        if "content-type" not in {name.lower() for name, _ in outcome.headers}:
            raise Violation("report the headers of the answer as pairs of name and value")
        kit.is_free("when the report is accepted, forget the block: do not name it in `holding`")


def outcomes(kit: NodeKit) -> None:
    """Each request is reported: answers of any status, and those that brought no whole answer."""
    with kit.node():
        nowhere = {"url": "http://127.0.0.1:9/nowhere"}
        run = kit.crawl("/page", "/missing", "/large", "/cut", nowhere)
        found = kit.outcomes(run, 5, "report each request of a block, the failed ones too")
        for path, status in (("/page", 200), ("/missing", 404)):
            if found[path].status != status or found[path].error:
                raise Violation(f"{path} was answered {status}, which is no error. It is reported as {found[path]}")
        for path in ("/large", "/cut", "/nowhere"):
            if not found[path].error:
                raise Violation(f"{path} brings no whole answer, so its report needs an `error`. It is reported as {found[path]}")
        kind = found["/large"].error
        if kind is None or kind.kind != "too-large":
            raise Violation(f"a body over `maxBody` is an error `too-large`, not {kind}")
        if any("not-reported" in str(outcome.error) for outcome in found.values()):
            raise Violation("a request of a block is not in its report")


def request(kit: NodeKit) -> None:
    """Method, headers and body of a request are sent."""
    with kit.node():
        asked = {"url": f"{kit.site.url}/post", "method": "POST", "headers": {"X-Conformance": "yes"}, "body": "a=1&b=2"}
        outcome = kit.outcomes(kit.crawl(asked), 1, "the request must be reported")["/post"]
        got = base64.b64decode(outcome.content).decode()
        if got != "POST /post yes a=1&b=2":
            raise Violation(
                f"method, header `X-Conformance`, body: `POST /post yes a=1&b=2` is expected, and the site got `{got}`"
            )


def many(kit: NodeKit) -> None:
    """Of many requests in several blocks each is downloaded once."""
    with kit.node():
        paths = [f"/many/{number}" for number in range(60)]
        kit.outcomes(kit.crawl(*paths), len(paths), "each request of each block must be reported")
        kit.once(*paths)


def sleep_time(kit: NodeKit) -> None:
    """`sleepTime` lies between the starts of two requests."""
    with kit.node():
        paths = [f"/paced/{number}" for number in range(5)]
        kit.outcomes(kit.crawl(*paths, SleepTime="400"), len(paths), "each request must be reported")
        gaps = [later - earlier for earlier, later in zip(kit.site.times, kit.site.times[1:], strict=False)]
        # The site saw them later than the node sent them, and not equally late.
        if sum(gaps) < 0.9 * 0.4 * len(gaps):
            raise Violation(f"400 ms must lie between the starts of two requests; there were {[round(gap, 3) for gap in gaps]} s")


def lost_answer(kit: NodeKit) -> None:
    """A report whose answer is lost is sent again, and nothing is downloaded again."""
    with kit.node():
        run = kit.crawl("/held/page")
        kit.is_asked("/held/page")
        kit.proxy.loses_answers.set()
        kit.site.gate.set()
        kit.outcomes(run, 1, "report the block while answers are lost")
        kit.proxy.pass_on()
        kit.is_free("the node still names a block whose report was accepted. Send a report until it is answered")
        kit.once("/held/page")
        kit.works("after a lost answer the node must go on")


def refused(kit: NodeKit) -> None:
    """A report that is answered 503 is sent again."""
    with kit.node():
        run = kit.crawl("/held/page")
        kit.is_asked("/held/page")
        kit.proxy.refuse(503)
        kit.site.gate.set()
        kit.wait(lambda: kit.proxy.refused >= 2, "the node does not try again after 503")
        kit.proxy.pass_on()
        kit.outcomes(run, 1, "after 503 send the report again, as often as it takes")
        kit.once("/held/page")
        kit.works("after 503 the node must go on")


def killed_broker(kit: NodeKit) -> None:
    """The broker is killed during a download, and gets the report when it is there again."""
    with kit.node():
        run = kit.crawl("/held/page")
        kit.is_asked("/held/page")
        kit.broker.kill()
        kit.broker.start()
        kit.site.gate.set()
        kit.outcomes(run, 1, "keep blocks and reports while the broker is away, and name them in `holding`")
        kit.once("/held/page")
        kit.works("after a restart of the broker the node must go on")


def identity(kit: NodeKit) -> None:
    """The node keeps its id when it connects again."""
    with kit.node():
        connections = kit.proxy.connections
        kit.proxy.cut()
        kit.wait(lambda: kit.proxy.connections > connections, "the node must connect again after a broken connection")
        kit.works("after a broken connection the node must go on")
        ids = {node.node_id for node in kit.broker.client.list_nodes().items}
        if ids != {kit.node_id}:
            raise Violation(f"the node has come with several ids, {sorted(ids)}. It must keep one")


def stopped(kit: NodeKit) -> None:
    """A block of a run that is stopped is given up."""
    with kit.node():
        run = kit.crawl("/held/page")
        kit.is_asked("/held/page")
        kit.broker.client.stop_run(run)
        kit.site.gate.set()
        kit.is_free("forget a block after `drop`, and after a report that is answered 404 or 409")
        kit.works("after a `drop` the node must go on")


def heartbeats(kit: NodeKit) -> None:
    """The node sends heartbeats while it downloads: a block that takes longer than the node may be silent stays its own."""
    with kit.node():
        paths = [f"/slow/{number}" for number in range(14)]
        kit.outcomes(
            kit.crawl(*paths, BlockSize="14", ThreadNum="1"), len(paths), "send heartbeats while downloads are under way"
        )
        kit.once(*paths)


CHECKS: dict[str, Callable[[NodeKit], None]] = {
    "hello": hello,
    "outcomes": outcomes,
    "request": request,
    "many": many,
    "sleep-time": sleep_time,
    "lost-answer": lost_answer,
    "503": refused,
    "killed-broker": killed_broker,
    "identity": identity,
    "stopped": stopped,
    "heartbeats": heartbeats,
}


def main(arguments: Sequence[str]) -> int:
    """Runs the checks; 0 if the node passes all of them."""
    parser = argparse.ArgumentParser(prog="python -m webloom.conformance node", description="Checks a node in any language.")
    parser.add_argument("--check", action="append", choices=list(CHECKS), help="only this check; may be repeated")
    parser.add_argument("command", nargs="+", help="starts the node, which finds the broker by WEBLOOM_BROKER")
    options = parser.parse_args(arguments)
    failed = 0
    for name in options.check or CHECKS:
        try:
            CHECKS[name](NodeKit(options.command))
        except Violation as error:
            failed += 1
            print(f"FAILED {name}: {CHECKS[name].__doc__}\n  {error}", flush=True)
        else:
            print(f"ok     {name}: {CHECKS[name].__doc__}", flush=True)
    print(f"{failed} of {len(options.check or CHECKS)} checks failed: see docs/protocol.md, 6" if failed else "the node conforms")
    return 1 if failed else 0

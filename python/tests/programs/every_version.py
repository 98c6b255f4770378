"""A task, a spider and the command line, with an installation that a test has made: all that this needs is installed."""

from __future__ import annotations

import http.server
import importlib
import pkgutil
import threading
from collections.abc import Iterator
from typing import Any

import webloom
from webloom import Response, Spider, TaskContext, Worker
from webloom.testing import Broker

#: They need what these installations do not have.
OPTIONAL = ("scrapy", "pytest_plugin")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<title>Page</title><a href=/one>1</a><a href=/two>2</a>"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def main() -> None:
    for module in pkgutil.iter_modules(webloom.__path__):
        if not any(name in module.name for name in OPTIONAL):
            importlib.import_module(f"webloom.{module.name}")
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    titles: list[str] = []
    with Broker() as broker:
        broker.agent()
        worker = Worker(broker.url)

        @worker.task("sum")
        def add(ctx: TaskContext, numbers: list[int]) -> int:
            ctx.progress(50, "half")
            return sum(numbers)

        @worker.task("coroutine")
        async def later(word: str) -> str:
            return word.upper()

        @worker.spider("titles")
        class Titles(Spider):
            def parse(self, response: Response) -> Iterator[Any]:
                titles.append(f"{response.url} {response.css('title::text').get()}")
                for link in response.css("a::attr(href)").getall():
                    yield response.follow(link)

        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            for handler, arguments, wanted in (("sum", {"numbers": [1, 2, 3]}, 6), ("coroutine", {"word": "a"}, "A")):
                task = {"handler": handler, "noWorker": "wait", "arguments": arguments}
                job = broker.client.create_job({"name": handler, "jobType": "task", "task": task})
                run = broker.client.wait_for_run(broker.client.trigger_job(job.id).identity, timeout=60)
                assert (run.state, run.result) == ("success", wanted), run
            start = f"http://127.0.0.1:{site.server_port}/"
            properties = {"FullClassName": "titles", "Arguments": start, "NoWorker": "wait"}
            job = broker.client.create_job({"name": "titles", "jobType": "block", "properties": properties})
            run = broker.client.wait_for_run(broker.client.trigger_job(job.id).identity, timeout=60)
            assert run.state == "success", run
            assert sorted(titles) == [f"{start}{page} Page" for page in ("", "one", "two")], titles
        finally:
            worker.stop()
            thread.join()
    site.shutdown()
    print("all of it works")


if __name__ == "__main__":
    main()

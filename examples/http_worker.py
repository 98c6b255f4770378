#!/usr/bin/env python3
"""A worker that needs no WebSocket and no library: register, hear of runs, push, poll, acknowledge.

    python3 examples/http_worker.py [BROKER [TOKEN]]

Both may also stand in the environment, as WEBLOOM_BROKER and WEBLOOM_TOKEN.

It watches the class `demo.Python`, asks for the URL that the job's Arguments name, follows its links on the same host
and prints a line for each page. The acknowledgement of a block carries the requests that follow from it: the two are
stored together, so nothing is lost when this program is killed between two calls.
"""

import base64
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

BROKER = (sys.argv[1] if len(sys.argv) > 1 else os.environ.get("WEBLOOM_BROKER", "http://127.0.0.1:55626")).rstrip("/")
TOKEN = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("WEBLOOM_TOKEN")
CLASS = "demo.Python"
OVER = {"success", "failed", "stopped"}


def call(method, path, body=None):
    """One call, repeated while the broker is away or busy. Returns status, headers and the JSON, if any."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if TOKEN:
        headers["Token"] = TOKEN
    data = None if body is None else json.dumps(body).encode()
    pause = 0.2
    while True:
        try:
            request = urllib.request.Request(BROKER + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=90) as answer:
                text = answer.read()
                return answer.status, answer.headers, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return error.code, error.headers, json.loads(error.read() or b"null")
            pause = max(pause, float(error.headers.get("Retry-After") or 0))
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(pause)
        pause = min(pause * 2, 10)


def start(run):
    """The first requests of a run."""
    status, _, answer = call("POST", f"/requestqueue/{run['identity']}", [{"url": run.get("arguments") or ""}])
    # What cannot be started says why; the run fails with that reason.
    error = None if status == 200 else answer.get("detail", "the push was refused")
    call("POST", f"/api/v1/runs/{run['identity']}/start-returned", {"error": error})


def read(outcome):
    """Prints a page and returns the requests that follow from it."""
    request = outcome["request"]
    body = base64.b64decode(outcome["content"]).decode("utf-8", "replace")
    print(outcome["status"], request["url"], len(body), (outcome.get("error") or {}).get("message", ""), flush=True)
    base = urllib.parse.urlsplit(outcome.get("targetUrl") or request["url"])
    follow = []
    for href in set(re.findall(r'href="([^"#]+)', body)):
        try:
            link = urllib.parse.urljoin(base.geturl(), href)
            if urllib.parse.urlsplit(link)[:2] == base[:2]:
                follow.append({"url": link, "depth": request.get("depth", 0) + 1})
        except ValueError:
            pass  # a link that is none
    return follow


def carry_out(run, worker):
    """Takes blocks until the run is over."""
    if not run.get("startReturned"):
        start(run)
    queue = f"/requestqueue/{run['identity']}"
    while True:
        # A short wait: this program does one thing at a time, and must be heard of meanwhile.
        status, headers, block = call("GET", f"{queue}?wait=5&worker={worker}")
        if status == 200:
            requests = [request for outcome in block["results"] for request in read(outcome)]
            call("POST", f"{queue}/ack", {"blocks": [block["blockId"]], "requests": requests})
        elif status != 204 or headers.get("webloom-run-state") in OVER:
            return
        call("GET", f"/api/v1/workers/{worker}/messages?wait=0")


def main():
    worker = None
    while True:
        status, _, me = call("POST", "/api/v1/workers", {"workerId": worker, "classNames": [CLASS]})
        if status != 200:
            sys.exit(f"the broker does not want this worker: {me}")
        worker = me["workerId"]
        while True:
            # Each poll says that we live; 404 says that we were forgotten.
            status, _, messages = call("GET", f"/api/v1/workers/{worker}/messages?wait=10")
            if status not in (200, 204):
                break
            for message in messages or []:
                if message["t"] == "start":
                    carry_out(message["v"], worker)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

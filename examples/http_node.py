#!/usr/bin/env python3
"""A node that needs no WebSocket and no library: it sends heartbeats, downloads what comes back, reports.

    python3 examples/http_node.py [BROKER [TOKEN]]

Both may also stand in the environment, as WEBLOOM_BROKER and WEBLOOM_TOKEN.

One block at a time, one request at a time, without cookies, proxies and retries: the least that a node must do. Every
request of a block is reported, the failed ones too, and the report is repeated until the broker has it.
"""

import base64
import json
import os
import platform
import sys
import time
import urllib.error
import urllib.request
import uuid

BROKER = (sys.argv[1] if len(sys.argv) > 1 else os.environ.get("WEBLOOM_BROKER", "http://127.0.0.1:55626")).rstrip("/")
TOKEN = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("WEBLOOM_TOKEN")
NODE = uuid.uuid4().hex
HEARTBEAT_S = 5
# The broker is asked at once after a block, and soon while none is there.
IDLE_S = 1


def call(path, body):
    """One POST. Returns status and JSON; status 0 if the broker is away."""
    headers = {"Content-Type": "application/json"}
    if TOKEN:
        headers["Token"] = TOKEN
    try:
        request = urllib.request.Request(BROKER + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, None
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0, None


def held(block):
    """A block as heartbeats and reports name it."""
    return {key: block[key] for key in ("identity", "blockId", "attempt", "epoch")}


def heartbeat(blocks):
    """Says that we live and what we hold; the answer may be one more block."""
    holding = [held(block) for block in blocks]
    return call("/node/heartbeat", {
        "nodeId": NODE,
        "processorCount": os.cpu_count(),
        "operatingSystem": platform.system().lower(),
        "nodeType": "Console",
        "group": "default",
        "processCount": len(holding),
        "cpu": 0,
        "freeMemory": 0,
        "holding": holding,
    })


def download(request, timeout_s, most):
    """What becomes of one request."""
    result = {"requestId": request["requestId"], "tries": 1}
    began = time.monotonic()
    body = request.get("body")
    try:
        asked = urllib.request.Request(request["url"], body and body.encode(), request.get("headers") or {},
                                       method=request.get("method") or "GET")
        try:
            answer = urllib.request.urlopen(asked, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            answer = error  # an answer like any other
        with answer:
            content = answer.read(most + 1)
            result["status"] = answer.status
            result["headers"] = list(answer.headers.items())
            if answer.url != request["url"]:
                result["targetUrl"] = answer.url
            if len(content) > most:
                result["error"] = {"kind": "too-large", "message": f"the body has more than {most} bytes"}
            elif answer.length:  # what is left of the Content-Length
                result["error"] = {"kind": "body", "message": "the body is cut short", "retryable": True}
            result["content"] = base64.b64encode(content[:most]).decode()
    except Exception as error:  # whatever it is, the worker is told
        kind = "timeout" if "timed out" in str(error) else "other"
        result["error"] = {"kind": kind, "message": str(error) or type(error).__name__}
    result["time"] = int((time.monotonic() - began) * 1000)
    return result


def work(blocks):
    """Downloads the first of some blocks and reports it; more may come in meanwhile."""
    block = blocks[0]
    report = {**held(block), "nodeId": NODE, "results": []}
    heard = time.monotonic()
    for request in block["requests"]:
        report["results"].append(download(request, block["timeout"] / 1000, block["maxBody"]))
        time.sleep(block.get("sleepTime", 0) / 1000)
        if time.monotonic() - heard > HEARTBEAT_S:
            status, another = heartbeat(blocks)
            # The broker says a block again when it is not sure that we have it.
            if status == 200 and held(another) not in [held(block) for block in blocks]:
                blocks.append(another)
            heard = time.monotonic()
    while True:
        status, counts = call("/node/block", report)
        if 0 < status < 500:
            # 4xx is final: the block is finished already, or somebody else's by now.
            print(f"block {block['blockId']}: {status} {counts or ''}", flush=True)
            blocks.pop(0)
            return
        time.sleep(2)


def main():
    blocks = []
    while True:
        if blocks:
            work(blocks)
            continue
        status, block = heartbeat(blocks)
        if status == 200:
            blocks.append(block)
        elif status in (401, 403):
            sys.exit("the broker does not want this node: is the token right?")
        else:
            time.sleep(IDLE_S)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass

"""Make a store with something of every kind, and a backup of it: the fixture of tests/it/older_store.rs.

Run it with the program of a version that is released, and keep the archive for ever:
    python3 tests/stores/make.py target/debug/webloom tests/stores/0.1.0.tar.gz
"""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

program, archive = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
home = Path(tempfile.mkdtemp())
broker = subprocess.Popen(
    [program, "broker", "--listen", "127.0.0.1:0", "--database", home / "b.db", "--worker-offline", "60000"],
    stdout=subprocess.PIPE,
    text=True,
)
url = broker.stdout.readline().strip().removeprefix("listening on ")


def call(method, path, body=None, raw=None):
    data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
    headers = {} if raw is not None else {"Content-Type": "application/json"}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method))
    except urllib.error.HTTPError as error:
        broker.kill()
        raise SystemExit(f"{method} {path} {body}: {error.read().decode()}") from None
    text = answer.read()
    return json.loads(text) if text and "json" in answer.headers.get("Content-Type", "") else None


def post(path, body):
    return call("POST", path, body)


def until(what, condition):
    for _ in range(3000):
        if value := condition():
            return value
        time.sleep(0.01)
    raise SystemExit(f"waited for {what}")


def beat(node):
    return call("POST", "/node/heartbeat", {"nodeId": node, "os": "linux", "cpuCount": 4, "group": "default", "totalMemory": 8000})


def report(node, block, status):
    results = [
        {"requestId": r["requestId"], "status": status, "tries": 1, "time": 3, "text": f"page {r['url']}"} for r in block["requests"]
    ]
    post("/node/block", {**{k: block[k] for k in ("blockId", "identity", "epoch", "attempt")}, "nodeId": node, "results": results})


group = post("/api/v1/groups", {"name": "nightly"})
post("/api/v1/alerts", {"name": "hook", "kind": "webhook", "target": "http://127.0.0.1:9/alerts"})
program_file = io.BytesIO()
with tarfile.open(fileobj=program_file, mode="w:gz") as tar:
    tar.addfile(tarfile.TarInfo("run"))
package = call("POST", "/api/v1/packages?name=a.tar.gz", raw=program_file.getvalue())["url"]

# A crawl: ten results that are acknowledged, ten that are not, ten requests of which one has failed, ten that wait.
worker = post("/api/v1/workers", {"classNames": ["old.Crawl"]})["workerId"]
properties = {"FullClassName": "old.Crawl", "BlockSize": "10", "RetryTimes": "1"}
crawl = post("/api/v1/jobs", {"name": "crawl", "jobType": "block", "properties": properties})
run = post(f"/api/v1/jobs/{crawl['id']}/trigger", {})["identity"]
post(f"/requestqueue/{run}", [{"url": f"http://example.test/{n}"} for n in range(40)])
node = "0f" * 16
for status in (200, 200, 404):
    report(node, until("a block", lambda: beat(node)), status)
page = until("results", lambda: call("GET", f"/requestqueue/{run}?worker={worker}&max=1"))
post(f"/requestqueue/{run}/ack", {"blocks": [block["blockId"] for block in page["blocks"]]})

# A cron job with a history of fires, whose task is handled; and a task that waits for a worker.
handler = post("/api/v1/workers", {"classNames": ["old.task"], "worker": {"slots": 4}})["workerId"]
every = post("/api/v1/jobs", {"name": "every second", "jobType": "task", "cron": "* * * * * *", "task": {"handler": "old.task"}})


def work():
    for message in call("GET", f"/api/v1/workers/{handler}/messages?wait=1") or []:
        for task in message["v"] if message["t"] == "tasks" else []:
            done = {"identity": task["identity"], "attempt": task["attempt"], "state": "success", "result": {"n": 1}}
            post(f"/api/v1/workers/{handler}/reports", [done])
    return call("GET", f"/api/v1/runs?jobId={every['id']}&state=success")["items"][2:]


until("three runs", work)
post(f"/api/v1/jobs/{every['id']}/disable", {})
waits = post("/api/v1/jobs", {"name": "waits", "jobType": "task", "group": "nightly", "task": {"handler": "old.absent", "noWorker": "wait"}})
waiting = post(f"/api/v1/jobs/{waits['id']}/trigger", {"arguments": {"from": "the past"}})["identity"]
subprocess.run([program, "backup", "--database", home / "b.db", "--to", home / "backup"], check=True)
broker.kill()
ids = {"crawl": run, "worker": worker, "every": every["id"], "waiting": waiting, "package": package}
(home / "backup" / "ids.json").write_text(json.dumps(ids))
with tarfile.open(archive, "w:gz") as tar:
    tar.add(home / "backup", "backup")

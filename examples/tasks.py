#!/usr/bin/env python3
"""A worker of tasks that needs no WebSocket and no library: register, fetch messages, report, send heartbeats.

    python3 examples/tasks.py [BROKER [TOKEN]]

Both may also stand in the environment, as WEBLOOM_BROKER and WEBLOOM_TOKEN.

Each task has a thread of its own. Two more keep the worker going: one fetches messages, one sends reports and
heartbeats. A last report is sent until the broker has settled it, so no result is lost while the broker is away. A task
is told to end when its lease may be over, since the broker gives it to another worker then.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
import uuid

BROKER = (sys.argv[1] if len(sys.argv) > 1 else os.environ.get("WEBLOOM_BROKER", "http://127.0.0.1:55626")).rstrip("/")
TOKEN = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("WEBLOOM_TOKEN")
SLOTS = 4
PROCESS = uuid.uuid4().hex
FINAL = {"refused", "success", "failed", "cancelled"}


class Cancelled(Exception):
    """The task was told to end, and does."""


class Permanent(Exception):
    """It would fail again."""


class Task:
    """One attempt, as its function sees it."""

    def __init__(self, order, say):
        self.order, self.say = order, say
        self.key = key(order)
        self.arguments, self.data = order.get("arguments"), order.get("data")
        self.told = threading.Event()
        self.reason = None
        self.until = 0  # the end of its lease, on the clock of time.monotonic
        self.begun = False
        self.last = {}  # goes with the last report

    def cancel(self, reason):
        self.reason = self.reason or reason
        self.told.set()

    def check(self):
        """To be called now and then: raises when the task is to end."""
        if not self.told.is_set() and time.monotonic() > self.until - self.order["lease"] / 5000:
            self.cancel("its lease runs out")
        if self.told.is_set():
            raise Cancelled(self.reason)

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            self.told.wait(min(left, self.order["lease"] / 20000))
        self.check()

    def progress(self, percent, text):
        self.say({**ref(self.order), "state": "running", "progress": percent, "text": text})

    def log(self, text, level="info"):
        self.say({**ref(self.order), "state": "running", "logs": [{"text": text, "level": level}]})


def ref(task):
    return {"identity": task["identity"], "instance": task.get("instance", 0), "attempt": task["attempt"]}


def key(task):
    return tuple(ref(task).values())


def total(task):
    """`[1, 2, 3]` brings 6."""
    if not isinstance(task.arguments, list):
        raise Permanent("a list of numbers is expected")
    return sum(task.arguments)


def walk(task):
    """`{"steps": 60}` takes a minute and says where it is."""
    steps = task.arguments["steps"]
    for step in range(1, steps + 1):
        task.sleep(1)
        task.progress(step * 100 // steps, f"step {step} of {steps}")


def count(task):
    """Counts its runs in the data of the job."""
    runs = (task.data or 0) + 1
    task.log(f"run number {runs}")
    task.last["data"] = runs
    return runs


HANDLERS = {"python.sum": total, "python.walk": walk, "python.count": count}


def call(method, path, body=None, timeout=90):
    """One call: its status, 0 if the broker is away, and the JSON of its answer."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if TOKEN:
        headers["Token"] = TOKEN
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(BROKER + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0, None


class Worker:
    def __init__(self):
        self.lock = threading.Lock()
        self.id, self.beat_s, self.beaten = None, 3, 0
        self.tasks = {}  # in hand
        self.outbox = {}  # last reports that are not settled
        self.said = queue.Queue()  # what tasks say before their end
        self.wake = threading.Event()
        self.draining = False

    def in_hand(self):
        with self.lock:
            return [ref(dict(zip(("identity", "instance", "attempt"), task))) for task in {**self.tasks, **self.outbox}]

    def waiting(self):
        with self.lock:
            return [task for task in self.tasks.values() if not task.begun]

    def register(self):
        """Says what is watched and what is in hand; again whenever the broker has forgotten this worker."""
        with self.lock:
            # What has not begun is not claimed: the broker may have given it away, and sends it again if it has not.
            self.tasks = {key: task for key, task in self.tasks.items() if task.begun}
        body = {
            "classNames": sorted(HANDLERS),
            "tasks": self.in_hand(),
            "worker": {"name": "python", "version": "1", "tags": ["python"],
                       "slots": 0 if self.draining else SLOTS, "process": PROCESS},
        }
        if self.id:
            body["workerId"] = self.id
        status, answer = call("POST", "/api/v1/workers", body)
        if status == 200:
            self.id, self.beat_s = answer["workerId"], answer["heartbeat"] / 1000
            return True
        if 400 <= status < 500:
            sys.exit(f"the broker does not want this worker: {answer}")
        return False

    def say(self, report):
        if report["state"] in FINAL:
            with self.lock:
                self.tasks.pop(key(report), None)
                self.outbox[key(report)] = report
        else:
            self.said.put(report)
        self.wake.set()

    def carry_out(self, task):
        """The body of a task's thread."""
        try:
            result = HANDLERS[task.order["handler"]](task)
            end = {"state": "success", **({} if result is None else {"result": result})}
        except Cancelled as reason:
            end = {"state": "cancelled", "error": {"message": str(reason)}}
        except Exception as error:  # whatever it is, the broker is told
            end = {"state": "failed", "error": {"message": str(error) or type(error).__name__,
                                                "stack": traceback.format_exc()[-16_000:],
                                                "permanent": isinstance(error, Permanent)}}
        self.say({**ref(task.order), **end, **task.last})

    def order(self, order):
        with self.lock:
            if key(order) in self.tasks or key(order) in self.outbox:
                return  # known: it is at work, or its last report is on its way
            is_full = len(self.tasks) >= SLOTS
        if order["handler"] not in HANDLERS or is_full or self.draining:
            why = "draining" if self.draining else "all places are taken" if is_full else "not watched here"
            self.say({**ref(order), "state": "refused", "error": {"message": why}})
            return
        # How much is left of its lease is not known: see `begin_new`.
        with self.lock:
            self.tasks[key(order)] = Task(order, self.say)
        self.wake.set()

    def take(self, message):
        kind, value = message["t"], message.get("v")
        if kind == "tasks":
            for order in value:
                self.order(order)
        elif kind == "cancel":
            task = self.tasks.get(key(value["task"]))
            if task:
                task.cancel(value["reason"])
                if not task.begun:
                    self.say({**ref(task.order), "state": "cancelled"})
        elif kind == "settled":
            self.settle(value)
        elif kind == "drain":
            self.draining = True
        elif kind == "kicked":
            sys.exit(f"put out: {value['reason']}")

    def settle(self, settled):
        with self.lock:
            for task in settled or []:
                self.outbox.pop(key(task), None)

    def heartbeat(self):
        """Renews the leases of what it names, from when it is sent, once it is answered. Returns what it named."""
        with self.lock:
            named = [task for task in self.tasks.values() if not task.told.is_set()]
        sent = self.beaten = time.monotonic()
        status, _ = call("POST", f"/api/v1/workers/{self.id}/heartbeat", {"tasks": self.in_hand()}, timeout=10)
        if status not in (200, 204):
            return []
        for task in named:
            if not task.told.is_set():
                task.until = max(task.until, sent + task.order["lease"] / 1000)
        return named

    def begin_new(self):
        """Begins what a heartbeat has named, unless the messages after it say that it is not ours any more."""
        named = self.heartbeat()
        if not self.poll(0):
            return  # a `cancel` may be lost with it; the broker sends it again after the next heartbeat
        for task in named:
            if not task.begun and not task.told.is_set() and time.monotonic() < task.until:
                task.begun = True
                threading.Thread(target=self.carry_out, args=(task,), daemon=True).start()

    def poll(self, wait):
        """Fetches messages. False: we are forgotten, or the broker is away."""
        status, messages = call("GET", f"/api/v1/workers/{self.id}/messages?wait={wait}")
        for message in messages or [] if status == 200 else []:
            self.take(message)
        return status in (200, 204)

    def report(self):
        """Sends what tasks said, and all last reports that are not settled."""
        reports = []
        while len(reports) < 200 and not self.said.empty():
            reports.append(self.said.get())
        with self.lock:
            reports += list(self.outbox.values())
        # A body has at most a megabyte; what does not fit goes with the next one.
        while len(reports) > 1 and len(json.dumps(reports)) > 1_000_000:
            del reports[len(reports) // 2:]
        if not reports:
            return
        status, settled = call("POST", f"/api/v1/workers/{self.id}/reports", reports, timeout=10)
        if status == 200:
            self.settle(settled)

    def talk(self):
        """The thread that sends reports and heartbeats."""
        while True:
            with self.lock:
                leases = [task.order["lease"] / 3000 for task in self.tasks.values()]
            beat_at = self.beaten + min([self.beat_s, *leases])
            if self.id and time.monotonic() >= beat_at:
                self.heartbeat()
                continue
            self.report()
            if self.wake.wait(max(beat_at - time.monotonic(), 0.02)):
                self.wake.clear()
                time.sleep(0.01)  # what ends at the same time goes together

    def run(self):
        threading.Thread(target=self.talk, daemon=True).start()
        while True:
            if not self.register():
                time.sleep(1)
                continue
            print(f"worker {self.id} watches {', '.join(sorted(HANDLERS))}", flush=True)
            while self.poll(0 if self.waiting() else 20):
                if self.waiting():
                    self.begin_new()
                if self.draining:
                    while self.in_hand():
                        time.sleep(0.1)
                    return
            time.sleep(0.5)


if __name__ == "__main__":
    try:
        Worker().run()
    except KeyboardInterrupt:
        pass

"""What one process of a shared crawl exchanges with the broker, in two threads of its own.

The process is a node of a group that only the runs of its crawl ask for. It fetches blocks by plain HTTP, because such a node may
refuse runs: a block of a run that asks for no group is given back once, and the run is not offered again.

It is also a worker of the class of the crawl, so that operators see who is at work and can end it. That is all that the worker
does.

A block is reported only after everything that its pages led to has been pushed. So an answered block holds nothing that could be
lost, and whichever process polls acknowledges it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from ._scrapy_calls import Calls
from ._settings import Settings
from .client import FINAL_STATES
from .errors import ApiError, BrokerUnavailable

log = logging.getLogger("webloom.scrapy")

#: Blocks that a node without a socket may hold.
_BLOCKS_OF_A_NODE = 5
#: Seconds between two exchanges while there is enough to do, and at least.
_PERIOD_S, _SHORTEST_S = 0.05, 0.005
#: Seconds between two questions for work when there was none: they grow.
_FIRST_IDLE_S, _LONGEST_IDLE_S = 0.02, 0.25
#: Seconds between two heartbeats of a node.
_HEARTBEAT_S = 1.0
#: Seconds between two questions of the worker for messages, until the broker has said what it expects.
_ATTEND_S = 2.0
#: Seconds between two polls that found something: they acknowledge what has gathered.
_GATHER_S = 0.2
#: The most requests and bytes of a push.
_MOST_REQUESTS, _MOST_BYTES = 5_000, 8 << 20
_FIELD = re.compile(r"requests\[(\d+)\]|^\[(\d+)\]")


class Block:
    """Requests that this process has fetched and that are reported together."""

    def __init__(self, order: dict[str, Any], node: _Node) -> None:
        self.block_id: str = order["blockId"]
        self.node = node
        self.order = order
        self.requests: list[dict[str, Any]] = order["requests"]
        #: Results by the id of the request.
        self.results: dict[str, dict[str, Any]] = {}
        #: Requests that cannot be sent and may follow from this block: it is not over before they are.
        self.waits_for = 0

    @property
    def is_done(self) -> bool:
        return len(self.results) == len(self.requests) and not self.waits_for


class _Node:
    """One of the nodes that this process is. A node without a socket holds few blocks, so a process may be several."""

    def __init__(self) -> None:
        self.node_id = uuid.uuid4().hex
        self.blocks: dict[str, Block] = {}
        self.last_beat = 0.0

    def holding(self) -> list[dict[str, Any]]:
        names = ("identity", "blockId", "attempt", "epoch")
        return [{name: block.order[name] for name in names} for block in self.blocks.values()]


class Link:
    """The methods without a comment on threads are called by the thread of the spider.

    Args:
        run: the identity of the run.
        group: the group of the nodes of this crawl.
        class_name: the class of the worker.
        most_nodes: how many nodes this process may be.
        call_soon: has the thread of the spider call a function.
        arrived: is called there with blocks that have arrived.
        refused: is called there with requests that the broker does not take, and its reason.
        over: is called there once, with the reason: the run has ended as `success`, `failed` or `stopped`, or an operator has put
            this process out: `drained` or `kicked`.
    """

    def __init__(
        self,
        settings: Settings,
        run: str,
        group: str,
        class_name: str,
        name: str,
        most_nodes: int,
        call_soon: Callable[..., Any],
        arrived: Callable[[list[Block]], None],
        refused: Callable[[bytes, str], None],
        count: Callable[[str, int], None],
        over: Callable[[str], None],
    ) -> None:
        self._run, self._group, self._name, self._most_nodes = run, group, name, most_nodes
        self._worker_id = uuid.uuid4().hex
        self._registration = {
            "workerId": self._worker_id,
            "classNames": [class_name],
            "worker": {"name": name[:50], "slots": 0, "process": self._worker_id},
        }
        self._is_registered, self._attend_at, self._attend_s = False, 0.0, _ATTEND_S
        self._call_soon, self._on_arrived, self._on_refused, self._on_over = call_soon, arrived, refused, over
        self._on_count = count
        self._calls, self._poll_calls = Calls(settings), Calls(settings)
        self._lock = threading.Condition()
        self._outbox: list[bytes] = []
        self._finished: list[Block] = []
        self._wanted = 0
        self._is_urgent = self._has_started = self._is_closing = False
        # Of the exchanging thread.
        self._nodes = [_Node()]
        self._foreign: list[str] = []
        self._start_said = False
        self._idle_s, self._next_pull = _FIRST_IDLE_S, 0.0
        self._is_over = False
        self._ended_by = ""
        self._threads = [
            threading.Thread(target=self._exchange_always, name="webloom-exchange", daemon=True),
            threading.Thread(target=self._poll_always, name="webloom-poll", daemon=True),
        ]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def push(self, message: bytes) -> None:
        """A request for the crawl."""
        with self._lock:
            self._outbox.append(message)
            if self._is_urgent:
                self._lock.notify()

    def finish(self, block: Block) -> None:
        """A block is done, and all that follows from it has been pushed."""
        with self._lock:
            self._finished.append(block)
            if self._is_urgent:
                self._lock.notify()

    def want(self, count: int, is_urgent: bool) -> None:
        """How many more requests are wanted, and whether there is nothing to do without them."""
        with self._lock:
            self._wanted = count
            if is_urgent != self._is_urgent:
                self._is_urgent = is_urgent
                self._lock.notify()

    def start_is_over(self) -> None:
        """The spider has yielded all its first requests, and they have been pushed."""
        with self._lock:
            self._has_started = True
            self._lock.notify()

    def close(self, timeout: float) -> bool:
        """Sends what is left, gives back what was not begun, and leaves. Blocks; any thread may call it.

        Returns: whether the broker has everything.
        """
        if not self._threads[0].ident:
            return True  # it has never begun
        self._calls.end_at(timeout)
        with self._lock:
            self._is_closing = True
            self._lock.notify()
        self._poll_calls.hang_up()
        for thread in self._threads:
            thread.join(timeout + 5)
        with self._lock:
            return not (self._outbox or self._finished or any(node.blocks for node in self._nodes)) or self._is_over

    # The exchanging thread.

    def _exchange_always(self) -> None:
        try:
            while self._exchange():
                self._pause()
            self._leave()
        except BrokerUnavailable as error:
            log.warning("left without a word to the broker run_id=%s error=%s", self._run, error)
        except Exception:
            log.exception("the exchange with the broker failed run_id=%s", self._run)
            self._end("failed")
        finally:
            self._calls.close()

    def _pause(self) -> None:
        time.sleep(_SHORTEST_S)
        with self._lock:
            until = time.monotonic() + _PERIOD_S
            while not self._is_closing and (left := until - time.monotonic()) > 0:
                if self._is_urgent:
                    if self._outbox or self._finished:
                        return
                    left = min(left, self._next_pull - time.monotonic())
                    if left <= 0:
                        return
                self._lock.wait(left)

    def _exchange(self) -> bool:
        with self._lock:
            outbox, self._outbox = self._outbox, []
            finished, self._finished = self._finished, []
            has_started, is_closing = self._has_started, self._is_closing
        if self._is_over:
            # A report for a run that is over changes nothing.
            for block in finished:
                block.node.blocks.pop(block.block_id, None)
            if outbox:
                log.warning("the crawl is over: requests are dropped run_id=%s count=%d", self._run, len(outbox))
            return not is_closing
        try:
            if outbox:
                self._push(outbox)
            for block in finished:
                self._report(block, [])
            if has_started and not self._start_said:
                self._calls.call("POST", f"/api/v1/runs/{self._run}/start-returned", b"{}")
                self._start_said = True
            if not is_closing:
                self._fetch()
                self._attend()
        except ApiError as error:
            if error.type not in ("run-over", "not-found", "no-queue"):
                raise
            self._read_end()
        return not is_closing

    def _push(self, messages: list[bytes]) -> None:
        at = 0
        while at < len(messages):
            part, size = at, 0
            while part < len(messages) and part - at < _MOST_REQUESTS and size < _MOST_BYTES:
                size += len(messages[part])
                part += 1
            self._push_part(messages[at:part])
            at = part
        self._idle_s, self._next_pull = _FIRST_IDLE_S, 0.0

    def _push_part(self, messages: list[bytes]) -> None:
        while messages:
            try:
                answer = self._calls.call("POST", f"/requestqueue/{self._run}", b"[" + b",".join(messages) + b"]")
            except ApiError as error:
                if error.status not in (400, 413, 422):
                    raise
                # One request that the broker does not take must not cost the others.
                found = _FIELD.search(error.field or "")
                place = int(found[1] or found[2]) if found else len(messages)
                if place < len(messages):
                    self._call_soon(self._on_refused, messages.pop(place), str(error))
                elif len(messages) == 1:
                    self._call_soon(self._on_refused, messages.pop(), str(error))
                else:
                    for message in messages:
                        self._push_part([message])
                    return
                continue
            duplicates = json.loads(answer.content).get("duplicates", 0)
            if duplicates:
                self._call_soon(self._on_count, "dupefilter/filtered", duplicates)
            return

    def _report(self, block: Block, back: list[str]) -> None:
        report = {name: block.order[name] for name in ("blockId", "identity", "epoch", "attempt")}
        report["nodeId"] = block.node.node_id
        report["results"] = [block.results[id_] for id_ in (r["requestId"] for r in block.requests) if id_ in block.results]
        if back:
            report["back"] = [{"requestId": id_} for id_ in back]
        try:
            self._calls.call("POST", "/node/block", json.dumps(report).encode())
        except ApiError as error:
            # Another process has the block, or its run is over.
            log.debug("report is not taken block_id=%s error=%s", block.block_id, error)
        block.node.blocks.pop(block.block_id, None)

    def _fetch(self) -> None:
        now = time.monotonic()
        arrived: list[Block] = []
        with self._lock:
            wanted = self._wanted
        if wanted > 0 and now >= self._next_pull:
            while wanted > 0 and (node := self._node_with_room()) is not None:
                block = self._beat(node, [])
                if block is None:
                    self._next_pull = time.monotonic() + self._idle_s
                    self._idle_s = min(self._idle_s * 2, _LONGEST_IDLE_S)
                    break
                self._idle_s = _FIRST_IDLE_S
                wanted -= len(block.requests)
                arrived.append(block)
        for node in self._nodes:
            if now - node.last_beat > _HEARTBEAT_S:
                block = self._beat(node, [self._run])
                if block is not None:
                    arrived.append(block)
        if arrived:
            with self._lock:
                self._wanted = max(wanted, 0)
            self._call_soon(self._on_arrived, arrived)

    def _node_with_room(self) -> _Node | None:
        for node in self._nodes:
            if len(node.blocks) < _BLOCKS_OF_A_NODE:
                return node
        if len(self._nodes) >= self._most_nodes:
            return None
        self._nodes.append(_Node())
        return self._nodes[-1]

    def _beat(self, node: _Node, without: list[str]) -> Block | None:
        """A heartbeat of a node, which may bring a block."""
        call = {
            "nodeId": node.node_id,
            "name": self._name,
            "nodeType": "Scrapy",
            "group": self._group,
            "operatingSystem": os.uname().sysname.lower() if hasattr(os, "uname") else os.name,
            "processCount": len(node.blocks),
            "holding": node.holding(),
            "runnings": without + self._foreign,
        }
        answer = self._calls.call("POST", "/node/heartbeat", json.dumps(call).encode())
        node.last_beat = time.monotonic()
        if answer.status != 200:
            return None
        order = json.loads(answer.content)
        held = node.blocks.get(order["blockId"])
        if held is not None:
            # It comes again: it seemed to be lost on the way, or this process did.
            held.order.update(attempt=order["attempt"], epoch=order["epoch"])
            return None
        block = Block(order, node)
        if order["identity"] != self._run:
            self._foreign.append(order["identity"])
            self._report(block, [request["requestId"] for request in block.requests])
            return None
        node.blocks[block.block_id] = block
        return block

    def _attend(self) -> None:
        """Fetches the messages of the worker."""
        if time.monotonic() < self._attend_at:
            return
        path = f"/api/v1/workers/{self._worker_id}/messages?wait=0"
        try:
            if not self._is_registered:
                answer = self._calls.call("POST", "/api/v1/workers", json.dumps(self._registration).encode())
                self._attend_s = min(_ATTEND_S, json.loads(answer.content)["heartbeat"] / 1000)
                self._is_registered = True
            answer = self._calls.call("GET", path)
            for message in json.loads(answer.content) if answer.status == 200 else ():
                if message["t"] in ("drain", "kicked"):
                    self._end("drained" if message["t"] == "drain" else "kicked")
        except ApiError as error:
            if error.status == 403:
                self._end("kicked")
            elif error.status == 404:
                self._is_registered = False
            else:
                raise
        self._attend_at = time.monotonic() + self._attend_s

    def _leave(self) -> None:
        for node in self._nodes:
            for block in list(node.blocks.values()):
                if not self._is_over:
                    self._report(block, [r["requestId"] for r in block.requests if r["requestId"] not in block.results])
            try:
                self._calls.call("DELETE", f"/api/v1/nodes/{node.node_id}?force=true")
            except ApiError as error:
                log.debug("node is not removed node_id=%s error=%s", node.node_id, error)
        if self._is_registered and self._ended_by != "kicked":
            with contextlib.suppress(ApiError):
                self._calls.call("DELETE", f"/api/v1/workers/{self._worker_id}?force=true")

    # The polling thread, and the end.

    def _poll_always(self) -> None:
        try:
            while True:
                path = f"/requestqueue/{self._run}?wait=20&max=64&ack=auto"
                answer = self._poll_calls.call("GET", path, timeout=50.0)
                if answer.run_state in FINAL_STATES:
                    self._end(answer.run_state)
                    return
                if answer.status == 200:
                    time.sleep(_GATHER_S)
        except BrokerUnavailable:
            pass  # this process leaves
        except ApiError as error:
            log.warning("run is gone run_id=%s error=%s", self._run, error)
            self._end("stopped")
        except Exception:
            log.exception("the poll of the run failed run_id=%s", self._run)
            self._end("failed")
        finally:
            self._poll_calls.close()

    def _read_end(self) -> None:
        state = json.loads(self._calls.call("GET", f"/api/v1/runs/{self._run}").content)["state"]
        if state in FINAL_STATES:
            self._end(state)

    def _end(self, reason: str) -> None:
        with self._lock:
            is_known = bool(self._ended_by) or self._is_closing
            self._ended_by = self._ended_by or reason
            self._is_over |= reason in FINAL_STATES
            self._lock.notify()
        if not is_known:
            self._call_soon(self._on_over, reason)


def host_name() -> str:
    """What people call this process."""
    return f"{socket.gethostname()} {os.getpid()}"

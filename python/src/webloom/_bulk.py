"""Blocks as the broker delivers them in bulk: docs/protocol.md, section 7."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import zstandard

from .errors import ProtocolError

MEDIA_TYPE = "application/x-webloom"
#: The most bytes of one block, decompressed.
MOST = 1 << 30


@dataclass
class Result:
    """What became of one request."""

    request: dict[str, Any]
    entry: dict[str, Any]
    head: dict[str, Any]
    body: bytes


@dataclass
class FinishedBlock:
    """Results that are acknowledged together."""

    block_id: str
    results: list[Result]


class _Reader:
    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.at, self.what = memoryview(data), 0, what

    def take(self, count: int) -> memoryview:
        if count < 0 or self.at + count > len(self.data):
            raise ProtocolError(f"{self.what} is cut short")
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def number(self) -> int:
        found: int = struct.unpack("<I", self.take(4))[0]
        return found

    def json(self, count: int) -> Any:
        return json.loads(bytes(self.take(count))) if count else {}

    def rest(self) -> memoryview:
        return self.take(len(self.data) - self.at)


def _unpack(data: memoryview, size: int, what: str) -> bytes:
    if size > MOST:
        raise ProtocolError(f"{what} has {size} bytes, more than this version takes")
    if size == 0 and not data:
        return b""
    try:
        raw = zstandard.ZstdDecompressor().decompress(bytes(data), max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise ProtocolError(f"{what} is no zstd: {error}") from error
    if len(raw) != size:
        raise ProtocolError(f"{what} has {len(raw)} bytes, {size} are expected")
    return raw


def read_deliveries(data: bytes) -> list[FinishedBlock]:
    """The blocks of an answer.

    Raises:
        ProtocolError: it cannot be read.
    """
    outer = _Reader(data, "the delivery")
    blocks = []
    try:
        while outer.at < len(data):
            inner = _Reader(bytes(outer.take(outer.number())), "the delivery")
            blocks.append(_read_one(inner))
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"the delivery cannot be read: {type(error).__name__}: {error}") from error
    return blocks


def _read_one(reader: _Reader) -> FinishedBlock:
    head = reader.json(reader.number())
    requests = json.loads(_unpack(reader.take(head["requests"]), head["requestsRaw"], "the requests") or b"[]")
    by_id = {request["requestId"]: request for request in requests}
    pack = _Reader(bytes(reader.take(head["pack"])), "the pack")
    if bytes(pack.take(4)) != b"WLP1":
        raise ProtocolError("the pack does not begin with WLP1")
    index = pack.json(pack.number())
    entries = index["results"]
    size = sum(entry.get("head", 0) + entry.get("body", 0) for entry in entries)
    bulk = _Reader(_unpack(pack.rest(), size, "the pack"), "the pack")
    results = []
    for entry in entries:
        request = by_id.pop(entry["requestId"], None)
        about = bulk.json(entry.get("head", 0))
        body = bytes(bulk.take(entry.get("body", 0)))
        if request is not None:
            results.append(Result(request, entry, about, body))
    # A page of which the block has no result has failed; it is not lost.
    for request in by_id.values():
        error = {"kind": "not-reported", "message": "the block holds no result of it", "retryable": True}
        results.append(Result(request, {"requestId": request["requestId"], "status": 0, "error": error}, {}, b""))
    return FinishedBlock(head["blockId"], results)

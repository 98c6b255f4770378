"""Scrapy's requests as JSON, and back.

Nothing is pickled: what comes from the broker can name only methods of the spider, and classes of requests and items that this
process has loaded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from scrapy import Item, Request, Spider
from scrapy.utils.request import request_from_dict

#: The range of priorities of the broker.
MOST_PRIORITY = 100
#: The most bytes of a URL and of a request in the broker.
_MOST_URL, _MOST = 8_192, 1 << 20
#: Marks a value that JSON does not have. Its value is the kind: bytes, tuple, dict, item, int.
_TAG = "$"
_DEFAULTS: dict[str, Any] = {
    "callback": None,
    "errback": None,
    "headers": {},
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "flags": [],
    "cb_kwargs": {},
    "dont_filter": False,
}


class Unserializable(Exception):
    """The request holds something that cannot be sent to another process."""


def to_message(request: Request, spider: Spider, key: str, more: dict[str, Any] | None = None) -> bytes:
    """The request as the broker takes it; `more` comes back from `extras_of`.

    Raises:
        Unserializable: a value is of a type that JSON cannot hold, a callback is no method of the spider, or the broker does not
            take such a request.
    """
    try:
        data = request.to_dict(spider=spider)
    except ValueError as error:
        raise Unserializable(str(error)) from None
    if not _is_known(data.get("_class")):
        raise Unserializable(f"the class `{data['_class']}` cannot be found by its name")
    if not request.url.startswith(("http://", "https://")) or len(request.url) > _MOST_URL:
        raise Unserializable(f"the broker takes URLs of http and https of at most {_MOST_URL} bytes")
    url, method, priority = data.pop("url"), data.pop("method"), data.pop("priority")
    kept = {}
    for name, value in data.items():
        if name not in _DEFAULTS or value != _DEFAULTS[name]:
            kept[name] = _pack(value)
    meta: dict[str, Any] = {"scrapy": kept}
    if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
        meta["priority"] = priority
        priority = max(-MOST_PRIORITY, min(priority, MOST_PRIORITY))
    if more:
        meta["more"] = more
    message: dict[str, Any] = {"url": url, "key": key, "meta": meta}
    if method != "GET":
        message["method"] = method
        # A process that dies has perhaps sent it; it comes again nevertheless.
        message["idempotent"] = True
    if priority:
        message["priority"] = priority
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise Unserializable(f"a text is no Unicode: {error}") from None
    if len(text) > _MOST:
        raise Unserializable(f"it has {len(text)} bytes, and the broker takes {_MOST}")
    return text


def priority_of(message: dict[str, Any]) -> int:
    """The priority as the spider gave it."""
    found: int = message["meta"].get("priority", message.get("priority", 0))
    return found


def from_message(message: dict[str, Any], spider: Spider) -> Request:
    """The request that `to_message` wrote.

    Raises:
        ValueError: it names a class that is not loaded, or no method of the spider, or cannot be read.
    """
    try:
        data = _unpack(message["meta"]["scrapy"])
        if not _is_known(data.get("_class")):
            raise ValueError(f"`{data['_class']}` is no class of requests that this process has loaded")
        data.update(url=message["url"], method=message.get("method", "GET"), priority=priority_of(message))
        request = request_from_dict(data, spider=spider)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the request cannot be read: {type(error).__name__}: {error}") from None
    for method in (request.callback, request.errback):
        if method is not None and getattr(method, "__self__", None) is not spider:
            raise ValueError(f"`{method}` is no method of the spider")
    return request


def extras_of(message: dict[str, Any]) -> dict[str, Any]:
    """What `to_message` got as `more`."""
    return message["meta"].get("more") or {}


def _pack(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        # Larger numbers do not survive programs that read numbers as floats.
        return value if -(1 << 53) < value < 1 << 53 else {_TAG: "int", "v": str(value)}
    if kind is float and math.isfinite(value):
        return value
    if kind is bytes:
        return {_TAG: "bytes", "v": value.decode("latin-1")}
    if kind is list:
        return [_pack(one) for one in value]
    if kind is tuple:
        return {_TAG: "tuple", "v": [_pack(one) for one in value]}
    if kind is dict:
        if _TAG not in value and all(type(key) is str for key in value):
            return {key: _pack(one) for key, one in value.items()}
        return {_TAG: "dict", "v": [[_pack(key), _pack(one)] for key, one in value.items()]}
    if isinstance(value, Item):
        return {_TAG: "item", "c": _name_of(kind), "v": [[key, _pack(one)] for key, one in value.items()]}
    raise Unserializable(f"a value of the type {kind.__name__} cannot be sent")


def _unpack(value: Any) -> Any:
    if type(value) is list:
        return [_unpack(one) for one in value]
    if type(value) is not dict:
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: _unpack(one) for key, one in value.items()}
    held = value["v"]
    if kind == "bytes":
        return held.encode("latin-1")
    if kind == "int":
        return int(held)
    if kind == "tuple":
        return tuple(_unpack(one) for one in held)
    if kind == "dict":
        return {_unpack(key): _unpack(one) for key, one in held}
    if kind == "item":
        if value["c"] not in _names_of(Item):
            _names_of.cache_clear()
        made = _names_of(Item).get(value["c"])
        if made is None:
            raise ValueError(f"`{value['c']}` is no class of items that this process has loaded")
        return made({key: _unpack(one) for key, one in held})
    raise ValueError(f"`{kind}` is no kind of value")


def _is_known(name: str | None) -> bool:
    if name is None or name in _names_of(Request):
        return True
    # The spider's module may have loaded it since.
    _names_of.cache_clear()
    return name in _names_of(Request)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _all_of(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all_of(below)


@cache
def _names_of(kind: type) -> dict[str, Any]:
    return {_name_of(found): found for found in _all_of(kind)}

"""The functions that are tasks: how they are called, and what becomes of what they return or raise."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import inspect
import json
import logging
import threading
import time
import traceback
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._tracing import span_of
from .task import (
    MOST_MESSAGE,
    MOST_STACK,
    MOST_VALUE,
    Attempt,
    Cancelled,
    PermanentError,
    RetryLater,
    TaskContext,
    _current,
    clean,
    ref_of,
)

log = logging.getLogger("webloom.worker")


#: Wall time of a short call, and how long short calls wait for a thread that is at another one, both in seconds.
SHORT_S, RELIEVE_S = 0.0005, 0.001

_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


class _BadArguments(PermanentError):
    pass


@dataclass
class Handler:
    """A function under the name of a task."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    in_process: bool
    context: str | None  # the parameter that gets the context
    unpack: bool
    signature: inspect.Signature
    names: frozenset[str]  # the parameters that can be given by name, without the one for the context
    needed: frozenset[str]  # those of them without a default
    by_name: bool  # whether names are enough to call it
    is_short: bool = False  # whether the last call was; see `Threads`

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], *, process: bool, unpack: bool) -> Handler:
        """Reads the signature of a function.

        Raises:
            TypeError: it cannot be a handler.
        """
        if not callable(function):
            raise TypeError(f"the task `{name}` is no function")
        target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        is_async = inspect.iscoroutinefunction(target)
        if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
            raise TypeError(f"the task `{name}` is a generator; a function or a coroutine function is expected")
        if process and is_async:
            raise TypeError(f"the task `{name}` is a coroutine function; a process runs plain functions")
        signature = inspect.signature(function)
        try:
            hints = typing.get_type_hints(function)
        except Exception:
            hints = {}
        context = None
        for parameter in signature.parameters.values():
            hint = hints.get(parameter.name, parameter.annotation)
            if hint is TaskContext or hint == "TaskContext":
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    raise TypeError(f"the task `{name}`: the parameter of type TaskContext must not be positional only")
                context = parameter.name
        rest = [p for p in signature.parameters.values() if p.name != context]
        named = [p for p in rest if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        needed = frozenset(p.name for p in named if p.default is p.empty)
        # A decorator may have the signature of what it wraps, and take no names itself.
        is_plain = not hasattr(function, "__wrapped__")
        by_name = is_plain and all(p.kind is not p.POSITIONAL_ONLY for p in rest)
        names = frozenset(p.name for p in named)
        return cls(name, function, is_async, process, context, unpack, signature, names, needed, by_name)

    def bind(self, context: TaskContext) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How the function is called: a JSON object gives keyword arguments, any other value is the only one.

        Raises:
            PermanentError: the arguments do not fit.
        """
        given = context.arguments
        if self.by_name and self.unpack and isinstance(given, dict) and self.needed <= given.keys() <= self.names:
            return (), {**given, self.context: context} if self.context else given
        bound = self._bind(given, context)
        return bound.args, bound.kwargs

    def _bind(self, given: Any, context: TaskContext) -> inspect.BoundArguments:
        named: dict[str, Any] = {self.context: context} if self.context else {}
        rest = [p for p in self.signature.parameters.values() if p.name != self.context]
        try:
            if self.unpack and isinstance(given, dict):
                if self.context in given:
                    raise TypeError(f"got an argument `{self.context}`, which is the task's context")
                return self.signature.bind(**named, **given)
            first = next((p for p in rest if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)), None)
            if given is None and (first is None or first.default is not first.empty):
                return self.signature.bind(**named)
            if first is None:
                raise TypeError("it takes no arguments")
            if first.kind is first.POSITIONAL_ONLY:
                return self.signature.bind(given, **named)
            return self.signature.bind(**named, **{first.name: given})
        except TypeError as error:
            shown = json.dumps(given, ensure_ascii=False)
            raise _BadArguments(f"the arguments {shown[:300]} do not fit {self.name}{self.signature}: {error}") from None


def success(attempt: Attempt, result: Any) -> dict[str, Any]:
    """The last report of a function that returned."""
    report = {**attempt.ref, "state": "success", **attempt.after}
    if result is not None:
        report["result"] = result
    for name in ("result", "data"):
        if report.get(name) is None:
            continue
        try:
            text = _encode(report[name])
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            return failure(attempt.order, PermanentError(f"the {name} of the task is not JSON: {error}"), {})
        if size > MOST_VALUE:
            too_large = PermanentError(f"the {name} of the task has {size} bytes; at most {MOST_VALUE} are stored")
            return failure(attempt.order, too_large, {})
        # A copy: the program may have kept what it gave, and change it before it is sent.
        report[name] = json.loads(text)
    return report


def _text_of(error: BaseException) -> str:
    """What an exception says. Its `__str__` is the program's own, and may raise."""
    try:
        return str(error)
    except Exception:
        return ""


def failure(order: dict[str, Any], error: BaseException, after: dict[str, Any]) -> dict[str, Any]:
    """The last report of a function that raised."""
    text = _text_of(error)
    if isinstance(error, (Cancelled, asyncio.CancelledError, RetryLater)):
        return {**ref_of(order), "state": "cancelled", **({"error": {"message": clean(text)[:MOST_MESSAGE]}} if text else {})}
    said = text or type(error).__name__
    if text and not isinstance(error, PermanentError):
        said = f"{type(error).__name__}: {text}"
    told: dict[str, Any] = {"message": clean(said)[:MOST_MESSAGE]}
    if not isinstance(error, _BadArguments):
        stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        told["stack"] = clean(stack)[-MOST_STACK:]
    if isinstance(error, PermanentError):
        told["permanent"] = True
    kept: dict[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        all_ = _encode(after)
        if len(all_.encode()) <= MOST_VALUE:
            kept = json.loads(all_)
    return {**ref_of(order), "state": "failed", "error": told, **kept}


def ended(attempt: Attempt, error: BaseException) -> dict[str, Any]:
    """The last report of an attempt whose function raised."""
    report = failure(attempt.order, error, attempt.after)
    if attempt.is_told and report["state"] == "failed":
        # That it does not go well once it was asked to end is no failure of the function.
        report["state"] = "cancelled"
    return report


class Threads:
    """Threads for functions that block: as many as are at work at once, kept for the next ones.

    To wake a thread costs more than a short call. So one thread makes the short calls that are there, one after the other. If
    one of them takes longer than the last time, the rest goes to other threads after `RELIEVE_S`.

    They do not keep the program alive: a function that never returns cannot stop it from ending.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._idle: list[threading.Lock] = []  # each is released to wake the thread that waits for it
        self._count = 0
        self._is_relief_due = False

    def submit(self, call: Callable[[], None], is_short: bool = False) -> None:
        """Calls it in a thread. Short calls are only for the event loop of one thread."""
        with self._lock:
            # A thread was woken for the one before, and takes this one next.
            can_wait = is_short and len(self._calls) > 0
            self._calls.append(call)
        if not can_wait:
            self._wake(1)
        elif not self._is_relief_due:
            self._is_relief_due = True
            asyncio.get_running_loop().call_later(RELIEVE_S, self._relieve)

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls it in a thread, as `asyncio.to_thread` does. Any event loop may wait for it."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: Any, error: BaseException | None) -> None:
            if ended.done():
                return  # nothing waits for it any more
            if error is None:
                ended.set_result(value)
            else:
                # A future does not take this one.
                ended.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)

        def call() -> None:
            value = error = None
            try:
                value = context.run(function, *arguments)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, value, error)

        self.submit(call)
        return await ended

    def _relieve(self) -> None:
        self._is_relief_due = False
        self._wake(len(self._calls))

    def _wake(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                thread = self._idle.pop() if self._idle else None
            if thread is not None:
                thread.release()
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"webloom-task-{self._count}", daemon=True).start()

    def _serve(self) -> None:
        me = threading.Lock()
        me.acquire()
        while True:
            with self._lock:
                call = self._calls.popleft() if self._calls else None
                if call is None:
                    self._idle.append(me)
            if call is None:
                me.acquire()
                continue
            try:
                call()
            except BaseException:
                log.exception("a task's thread failed")


def run_in_thread(handler: Handler, attempt: Attempt, finish: Callable[[Attempt, dict[str, Any]], None]) -> None:
    """The body of a thread: calls the function and says what became of it."""
    context = TaskContext(attempt)
    interrupter = _Interrupter(attempt)
    began = time.monotonic()

    def call() -> dict[str, Any]:
        _current.set(context)
        try:
            context.check()
            with span_of(context), interrupter:
                positional, named = handler.bind(context)
                result = handler.function(*positional, **named)
            return success(attempt, result)
        except BaseException as error:
            return ended(attempt, error)

    try:
        report = contextvars.copy_context().run(call)
    except Cancelled as error:  # an interruption that came a moment late, and so outside of the function
        report = ended(attempt, error)
    handler.is_short = time.monotonic() - began < SHORT_S
    finish(attempt, report)


class _Interrupter:
    """Raises `Cancelled` in a thread that does not end when its lease does. It cannot interrupt a call of C code."""

    __slots__ = ("attempt", "lock", "thread")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.lock = threading.Lock()
        self.thread: int | None = None

    def __enter__(self) -> None:
        self.thread = threading.get_ident()
        self.attempt.stop = self.stop

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.thread = None

    def stop(self) -> None:
        with self.lock:
            if self.thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(Cancelled))


async def run_in_loop(handler: Handler, attempt: Attempt, finish: Callable[[Attempt, dict[str, Any]], None]) -> None:
    """Awaits the function and says what became of it."""
    context = TaskContext(attempt)
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None

    def cancel() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(me.cancel)

    attempt.ask = attempt.stop = cancel
    _current.set(context)
    try:
        context.check()
        with span_of(context):
            positional, named = handler.bind(context)
            result = await handler.function(*positional, **named)
        report = success(attempt, result)
    except asyncio.CancelledError:
        report = ended(attempt, Cancelled(attempt.cancel_reason or "the worker ends"))
    except BaseException as error:
        report = ended(attempt, error)
    finish(attempt, report)

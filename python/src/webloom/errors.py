"""What goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WebloomError(Exception):
    """The base of all errors of this package."""


class ConfigurationError(WebloomError):
    """A setting is missing or wrong."""


class BrokerUnavailable(WebloomError):
    """No broker answered, or the one that did stands by or is busy."""


class ProtocolError(WebloomError):
    """The broker sent what this version cannot read."""


class WorkerRejected(WebloomError):
    """The broker does not want this worker: the token is wrong, its role may not, or an operator put the worker out."""


class ApiError(WebloomError):
    """The broker refused a call.

    Attributes:
        status: the HTTP status.
        type: the kind of problem, for programs: the last part of `/problems/…`, for example `not-found`. Empty if the
            answer was no problem document.
        title: the problem in words.
        detail: what was wrong with this call.
        field: the part of the input that is meant, for example `requests[3].url`; `None` if there is none.
        retry_after: seconds after which the call may succeed; `None` if the broker named none.
    """

    def __init__(self, status: int, problem: Mapping[str, Any] | None = None, retry_after: float | None = None) -> None:
        problem = problem or {}
        self.status = status
        self.type = str(problem.get("type", "")).rsplit("/", 1)[-1]
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", ""))
        field = problem.get("field")
        self.field = None if field is None else str(field)
        self.retry_after = retry_after
        place = f" ({self.field})" if self.field else ""
        super().__init__(f"{status} {self.type or 'error'}: {self.detail or self.title or 'no detail'}{place}")

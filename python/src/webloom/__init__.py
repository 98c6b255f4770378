"""Tasks and crawls on a fleet of machines: workers, spiders and the API of Webloom."""

from .client import AsyncClient, Client
from .errors import ApiError, BrokerUnavailable, ConfigurationError, ProtocolError, WebloomError, WorkerRejected
from .spider import FetchError, Headers, Request, Response, Run, Spider
from .task import Cancelled, PermanentError, RetryLater, TaskContext, current_task
from .worker import Worker

__all__ = [
    "ApiError",
    "AsyncClient",
    "BrokerUnavailable",
    "Cancelled",
    "Client",
    "ConfigurationError",
    "FetchError",
    "Headers",
    "PermanentError",
    "ProtocolError",
    "Request",
    "Response",
    "RetryLater",
    "Run",
    "Spider",
    "TaskContext",
    "WebloomError",
    "Worker",
    "WorkerRejected",
    "current_task",
]

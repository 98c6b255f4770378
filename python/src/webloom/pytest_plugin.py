"""Fixtures for pytest. They are there as soon as this package is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .client import Client
from .testing import Broker


@pytest.fixture
def webloom_broker() -> Iterator[Broker]:
    """A broker of this test's own: `webloom_broker.url`, `webloom_broker.client`, `webloom_broker.agent()`.

    It is the program `webloom` that WEBLOOM_BINARY names, else the one in PATH.
    """
    with Broker() as broker:
        yield broker


@pytest.fixture
def webloom_client(webloom_broker: Broker) -> Client:
    """A client of the broker `webloom_broker`."""
    return webloom_broker.client

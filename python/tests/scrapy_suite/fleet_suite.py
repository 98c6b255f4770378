"""A plugin of pytest: Scrapy's own tests run with the components of the fleet.

`test_scrapy_suite.py` starts it in the folder of Scrapy's source. The variable `SUITE` says which component is tested;
`expected.py` has the tests that fail, each with the reason.
"""

import itertools
import os

import expected
import pytest
import tests.keys
from scrapy.settings import default_settings

from webloom import Client
from webloom.scrapy import FleetScheduler

SUITE = os.environ["SUITE"]
EXPECTED = expected.EXPECTED[SUITE]
LEFT_OUT = expected.LEFT_OUT[SUITE]
FINAL = ("success", "failed", "stopped")

# The agent trusts the certificate that is there.
tests.keys.generate_keys = lambda: None
numbers = itertools.count(1)


class OneCrawl(FleetScheduler):
    """Each crawl of a test is a crawl of its own in the broker."""

    def __init__(self, crawler):
        super().__init__(crawler)
        self._crawl = f"test {next(numbers)}"


if SUITE == "scheduler":
    default_settings.SCHEDULER = f"{__name__}.OneCrawl"


@pytest.fixture(autouse=True)
def fleet_is_idle():
    """Leaves nothing to the next test: no run at work, and no site that is held because it answered 503."""
    yield
    with Client() as client:
        for run in client.all(client.list_runs):
            if run.state not in FINAL:
                client.stop_run(run.identity)
        for site in client.all(client.list_sites, held=True):
            client.release_site(site.name)


def _found(item, names):
    """The key of a test in a list: its class and name."""
    name = item.nodeid.partition("::")[2].partition("[")[0]
    return name if name in names else None


def pytest_collection_modifyitems(config, items):
    chosen, left_out, used = [], [], set()
    for item in items:
        out = _found(item, LEFT_OUT)
        used.add(out)
        if out is not None:
            left_out.append(item)
            continue
        key = _found(item, EXPECTED)
        used.add(key)
        if key is not None:
            # A test that passes although it is in the list is a failure.
            item.add_marker(pytest.mark.xfail(reason=EXPECTED[key], strict=True))
        chosen.append(item)
    unknown = {*EXPECTED, *LEFT_OUT} - used
    if unknown:
        raise pytest.UsageError(f"Scrapy has no such tests: {sorted(unknown)}. Remove them from expected.py")
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen

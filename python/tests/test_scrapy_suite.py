"""Scrapy's own tests of download handlers and schedulers, unchanged, with the components of the fleet.

They come from Scrapy's source of the version that is tested, which `tests/run.sh` fetches. `scrapy_suite/expected.py` lists the
tests that fail, each with its reason: if one of them passes, or another one fails, this fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from webloom.testing import Broker

HERE = Path(__file__).parent / "scrapy_suite"
SOURCE = Path(os.environ.get("WEBLOOM_SCRAPY_SOURCE") or Path(sys.prefix) / "sources" / f"scrapy-{version('scrapy')}.tar.gz")

pytestmark = [
    pytest.mark.skipif(not SOURCE.exists(), reason=f"no source of Scrapy at {SOURCE}, so its own tests are not run"),
    # Many tests in one.
    pytest.mark.timeout(400),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    shutil.unpack_archive(SOURCE, tmp_path)
    (folder,) = tmp_path.iterdir()
    # The installed package is tested, not the one beside the tests.
    shutil.rmtree(folder / "scrapy")
    # The certificates of Scrapy's servers.
    command = [sys.executable, "-c", "from tests.keys import generate_keys; generate_keys()"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    shutil.copy(HERE / "download_handler.py", folder / "tests" / "test_fleet_download_handler.py")
    return folder


def run(folder: Path, suite: str, broker: Broker, *arguments: str) -> int:
    """Runs modules; how many tests passed."""
    environment = {**os.environ, "SUITE": suite, "WEBLOOM_BROKER": broker.url, "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "WEBLOOM_TOKEN"):
        environment.pop(name, None)
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = "-p fleet_suite -p no:cacheprovider -p no:xdist --reactor=none --timeout=60 --tb=short -q --durations=5"
    # Newer versions of what Scrapy tests with warn about its tests.
    options += " -W default -o asyncio_default_fixture_loop_scope=function"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=360,
        check=False,
    )
    print(ended.stdout[-20_000:])
    assert ended.returncode == 0, f"Scrapy's tests of {suite} do not end as expected.py says"
    # The summary is not always the last line: what is left of a crawl may log something at the very end.
    found = re.findall(r"(\d+) passed", ended.stdout)
    return int(found[-1]) if found else 0


def test_downloads(source: Path) -> None:
    with Broker() as broker:
        # Scrapy trusts every site, a node does not.
        broker.agent("--ca-file", str(source / "tests" / "keys" / "localhost.crt"))
        assert run(source, "downloads", broker, "tests/test_fleet_download_handler.py") > 40


def test_crawls_with_the_scheduler(source: Path) -> None:
    modules = [f"tests/{name}.py" for name in ("test_scheduler_base", "test_request_cb_kwargs", "test_crawl")]
    # What is about downloads, and the kinds of methods that a spider may have.
    others = "not (test_response_ or _received_ or async_def)"
    with Broker() as broker:
        assert run(source, "scheduler", broker, *modules, "-k", others) > 40

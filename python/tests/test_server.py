"""The wheel with the program: `pip install webloom[server]` puts `webloom` on the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[1]


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def version_of(manifest: str) -> str:
    found = re.search(r'^version = "(.+)"$', (PYTHON / manifest).read_text(), re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """The program of the build, without what only a debugger reads: that is half of it."""
    small = tmp_path / "webloom"
    run("strip", "-o", small, os.environ["WEBLOOM_BINARY"])
    return small


def test_the_extra_puts_the_program_on_the_path(tmp_path: Path, binary: Path) -> None:
    wheels = tmp_path / "wheels"
    pip: tuple[str | Path, ...] = ("-m", "pip", "--disable-pip-version-check", "--quiet")
    for source in ("server", "."):
        # A build leaves nothing in the sources.
        folder = shutil.copytree(PYTHON / source, tmp_path / f"source-{source}", ignore=shutil.ignore_patterns("tests", "server"))
        options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", wheels)
        run(sys.executable, *pip, "wheel", *options, folder, WEBLOOM_BINARY=str(binary))
    assert sorted(wheel.name.split("-")[0] for wheel in wheels.iterdir()) == ["webloom", "webloom_server"]

    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=True)
    install: tuple[str | Path, ...] = (fresh / "bin/python", *pip, "install", "--no-index", "--find-links", wheels)
    run(*install, "--no-deps", "webloom")
    # The dependencies of the package are those of this environment: there is no index to ask.
    packages = sysconfig.get_path("purelib", vars={"base": str(fresh)})
    Path(packages, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(*install, "webloom[server]")

    program = fresh / "bin/webloom"
    assert run(program, "--version").startswith(f"webloom {version_of('../Cargo.toml')} ")
    assert "pages" in run(program, "demo", "--exit", "--listen", "127.0.0.1:0")


def test_all_packages_have_the_version_of_the_crate() -> None:
    version = version_of("../Cargo.toml")
    assert (version_of("pyproject.toml"), version_of("server/pyproject.toml")) == (version, version)
    assert f'server = ["webloom-server=={version}"]' in (PYTHON / "pyproject.toml").read_text()

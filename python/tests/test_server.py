"""The wheels, installed without an index and without a compiler: both together put `webloom` on the path.

tests/run.sh builds them into the folder that WEBLOOM_WHEELS names. WEBLOOM_PYTHON_3_12 and so on name the Pythons of the machine.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import HERE
from webloom.testing import find_binary

PYTHON = Path(__file__).parents[1]
WHEELS = os.environ.get("WEBLOOM_WHEELS")
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
#: The version that runs the tests. The wheel with the program has no code in Python, so it is installed with this one only.
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def run(*command: str | Path) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WEBLOOM_", "PYTHON"))}
    done = subprocess.run(list(map(str, command)), env=kept, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def version_of(manifest: str) -> str:
    found = re.search(r'^version = "(.+)"$', (PYTHON / manifest).read_text(), re.MULTILINE)
    assert found
    return found[1]


# Four of them run at once beside other tests, and a machine may have two processors.
@pytest.mark.timeout(300)
@pytest.mark.skipif(WHEELS is None, reason="WEBLOOM_WHEELS names no folder of wheels; tests/run.sh builds them")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheels_work_with_each_version_of_python(tmp_path: Path, version: str) -> None:
    python = os.environ.get(f"WEBLOOM_PYTHON_{version.replace('.', '_')}")
    if python is None:
        pytest.skip(f"there is no Python {version}")
    run(python, "-m", "venv", "--without-pip", tmp_path)
    assert WHEELS is not None
    fresh = tmp_path / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", fresh, "--disable-pip-version-check", "--quiet")
    # By their files, as users have to: the name `webloom` on PyPI belongs to another project.
    files = [f"{next(Path(WHEELS).glob('webloom-*.whl'))}[parsel]"]
    if version == OWN:
        files.append(str(next(Path(WHEELS).glob("webloom_server-*.whl"))))
    run(*pip, "install", "--no-index", "--no-compile", "--find-links", WHEELS, *files)
    assert run(fresh, "--version").startswith(f"Python {version}.")
    program = str(tmp_path / "bin/webloom") if version == OWN else find_binary()
    assert run(program, "--version").startswith(f"webloom {version_of('../Cargo.toml')} ")
    check = HERE / "programs" / "every_version.py"
    assert "all of it works" in run("env", f"WEBLOOM_BINARY={program}", fresh, "-B", check)


def test_all_packages_have_the_version_of_the_crate() -> None:
    version = version_of("../Cargo.toml")
    assert (version_of("pyproject.toml"), version_of("server/pyproject.toml")) == (version, version)
    assert f'server = ["webloom-server=={version}"]' in (PYTHON / "pyproject.toml").read_text()


def test_the_tag_of_a_wheel_says_which_machines_can_run_the_program() -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", PYTHON / "server/hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    static = bytearray(64)  # a header alone: it names no loader of libraries
    static[:6], static[18] = b"\x7fELF\x02\x01", 183
    assert build.tag(bytes(static)) == "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64"
    assert re.fullmatch(rf"py3-none-manylinux_2_\d+_{platform.machine()}", build.tag(Path("/bin/sh").read_bytes()))
    with pytest.raises(ValueError, match="a program for Linux"):
        build.tag(b"#!/bin/sh")

"""Puts the program into the wheel, and says in its tag which machines can run it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def tag(program: bytes) -> str:
    """The wheel's tag: a system with the newest version of glibc that the program asks for."""
    versions = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", program)}
    if not versions:
        raise ValueError("WEBLOOM_BINARY: a program that is linked with glibc is expected")
    major, minor = max(versions)
    return f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"


class Program(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        named = os.environ.get("WEBLOOM_BINARY")
        # pip builds in another folder than that of the caller, so a relative path would lead nowhere.
        if not named or not Path(named).is_absolute():
            raise ValueError("WEBLOOM_BINARY must be the absolute path of the program, such as $PWD/target/dist/webloom")
        build_data["pure_python"] = False
        build_data["tag"] = tag(Path(named).read_bytes())
        build_data["shared_scripts"] = {named: "webloom"}

"""Puts the program into the wheel, and says in its tag which machines can run it."""

from __future__ import annotations

import os
import platform
import re
import struct
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Of the header of an ELF file: what it begins with for 64 bits and little endian, and the names of machines.
ELF, MACHINES = b"\x7fELF\x02\x01", {62: "x86_64", 183: "aarch64"}
#: The kind of the program header that names the loader of libraries.
PT_INTERP = 3


def is_static(program: bytes) -> bool:
    """Whether it needs no libraries of the system."""
    (offset,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    return all(struct.unpack_from("<I", program, offset + at * size) != (PT_INTERP,) for at in range(count))


def tag(program: bytes) -> str:
    """The wheel's tag: a system with the newest version of glibc that the program asks for, or any Linux for a static one."""
    if not program.startswith(ELF) or len(program) < 64:
        raise ValueError("WEBLOOM_BINARY: a program for Linux on a machine with 64 bits is expected")
    (number,) = struct.unpack_from("<H", program, 18)
    machine = MACHINES.get(number, platform.machine())
    if is_static(program):
        return f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    versions = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", program)}
    if not versions:
        raise ValueError("WEBLOOM_BINARY: a program that is linked with glibc, or a static one, is expected")
    major, minor = max(versions)
    return f"py3-none-manylinux_{major}_{minor}_{machine}"


class Program(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        named = os.environ.get("WEBLOOM_BINARY")
        # pip builds in another folder than that of the caller, so a relative path would lead nowhere.
        if not named or not Path(named).is_absolute():
            raise ValueError("WEBLOOM_BINARY must be the absolute path of the program, such as $PWD/target/dist/webloom")
        build_data["pure_python"] = False
        build_data["tag"] = tag(Path(named).read_bytes())
        build_data["shared_scripts"] = {named: "webloom"}

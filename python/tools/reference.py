"""Makes the pages of `docs/reference/` that a program knows best: the command line, the addresses of the API, the metrics.

    python3 python/tools/reference.py --binary target/debug/webloom

With `--check` it writes nothing and exits with 1 if a page differs from what the program says. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from generate import running

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference"
NOTE = "<!-- Made by python/tools/reference.py. Do not edit. -->\n"
# Groups of options that are the same for many commands.
SHARED = ("Connection:\n      --broker", "Output:")
ROLES = ("admin", "editor", "operator", "readonly", "worker", "agent")


def help_of(binary: str, words: list[str]) -> str:
    # What the environment sets would stand in the text.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEBLOOM_")}
    command = [binary, *words, "-h"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.rstrip() + "\n"


def subcommands(text: str) -> list[str]:
    """The names below `Commands:`."""
    _, found, rest = text.partition("\nCommands:\n")
    names = re.findall(r"^  ([a-z][a-z-]*)", rest.split("\n\n")[0], re.MULTILINE) if found else []
    return [name for name in names if name != "help"]


def commands(binary: str) -> list[tuple[str, str]]:
    """Each command with its help, in the order in which the program lists them."""
    found: list[tuple[str, str]] = []

    def look(words: list[str]) -> None:
        text = help_of(binary, words)
        found.append((" ".join(["webloom", *words]), text))
        for name in subcommands(text):
            look([*words, name])

    look([])
    return found


def command_page(binary: str) -> str:
    found = [(name, re.split(r"\n\n(?=\S)", text.rstrip())) for name, text in commands(binary)]
    # What nearly all commands take is printed once.
    counted = Counter(part for _, parts in found for part in parts if part.startswith(SHARED))
    shared = [part for part in dict.fromkeys(part for _, parts in found for part in parts) if counted[part] > 5]
    out = [
        "# Command line\n\n",
        NOTE,
        "\nWhat `-h` prints for each command. `--help` prints more about each option. [The guide](../guides/command-line.md)\n",
        "has examples, and the exit codes.\n\n## Options of many commands\n",
    ]
    out += [f"\n```text\n{part}\n```\n" for part in shared]
    for name, parts in found:
        kept = [part for part in parts if part not in shared]
        left = [part.split(":")[0] for part in parts if part in shared]
        also = f"\nAnd the options above: {', '.join(left)}.\n" if left else ""
        text = "\n\n".join(kept)
        out.append(f"\n## {name}\n\n```text\n{text}\n```\n{also}")
    return "".join(out)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def who(call: dict[str, Any]) -> str:
    security = call.get("security")
    if "Scheduler.NET" in call["tags"]:
        return "admin, see [protocol](../protocol.md#13-schedulernet)"
    if not security:
        others = {
            "openNodeSocket": "a node by its `sign`; the portal: everybody",
            "openLink": "another broker, by the secret of the database",
        }
        return others.get(call["operationId"], "everybody")
    roles = {role for option in security for named in option.values() for role in named}
    return ", ".join(role for role in ROLES if role in roles)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0].rstrip(".")


def api_page(document: dict[str, Any]) -> str:
    by_tag: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, call in item.items():
            if method == "parameters":
                continue
            query = [parameter["name"] for parameter in call.get("parameters", []) if parameter.get("in") == "query"]
            asked = " ".join(f"`{name}`" for name in query)
            what = first_sentence(call.get("description") or call["summary"])
            row = f"| `{method.upper()} {path}` | {cell(what)} | {asked} | {who(call)} |\n"
            by_tag.setdefault(call["tags"][0], []).append(row)
    out = [
        "# API\n\n",
        NOTE,
        "\nEvery address of the broker, with the role that a token needs. A broker without tokens asks for none. The broker\n"
        "describes the same with all schemas at `/api/v1/openapi.json` (OpenAPI 3.1).\n"
        "[Protocol](../protocol.md#8-rest) explains what the calls do, and [the errors](../protocol.md#9-errors).\n",
    ]
    for tag in sorted(by_tag, key=str.lower):
        out.append(f"\n## {tag}\n\n| call | what it does | query | who may |\n| --- | --- | --- | --- |\n")
        out += by_tag[tag]
    return "".join(out)


def metrics_page(text: str) -> str:
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    rows = []
    for name, kind in sorted(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)):
        rows.append(f"| `{name}` | {kind} | {cell(helps[name])} |\n")
    return "".join(
        [
            "# Metrics\n\n",
            NOTE,
            "\n`GET /metrics` answers in Prometheus' text format. [Operations](../operations.md#metrics) has the labels, and\n"
            "which metrics an alarm should watch. [Monitoring](../guides/monitoring.md) sets up Prometheus.\n\n",
            "| metric | type | what it says |\n| --- | --- | --- |\n",
            *rows,
        ]
    )


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--binary", required=True, help="a built `webloom`: it is asked for its help, and a broker is started")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    chosen = parser.parse_args()
    with running(chosen.binary) as url:
        document, metrics = json.loads(fetch(f"{url}/api/v1/openapi.json")), fetch(f"{url}/metrics")
    pages = {"cli.md": command_page(chosen.binary), "api.md": api_page(document), "metrics.md": metrics_page(metrics)}
    PAGES.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = PAGES / name
        if not chosen.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(
                f"docs/reference/{name} does not agree with the program. Make it again: "
                "python3 python/tools/reference.py --binary target/debug/webloom",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

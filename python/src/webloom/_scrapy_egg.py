"""The program `webloom-scrapy`: a node runs a spider of an egg with it.

Its working folder has the content of the egg. Its argument is an object in JSON that names the spider. Without an argument it
prints the names of the spiders.
"""

from __future__ import annotations

import configparser
import json
import os
import sys
from pathlib import Path
from typing import Any

#: The beginning of the line that the broker reads.
SPIDERS_LINE = "webloom-scrapy spiders: "


def settings_module(folder: Path) -> str:
    """The settings that the egg names, or else its `scrapy.cfg`.

    Raises:
        SystemExit: neither names them.
    """
    for file, section, key in (
        (folder / "EGG-INFO" / "entry_points.txt", "scrapy", "settings"),
        (folder / "scrapy.cfg", "settings", "default"),
    ):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.read(file, encoding="utf-8")
        if parser.has_option(section, key):
            return parser.get(section, key).strip()
    raise SystemExit(
        "webloom-scrapy: the package names no Scrapy settings: expected `settings` in the group `scrapy` of "
        "EGG-INFO/entry_points.txt, or `default` in the section `settings` of scrapy.cfg. Build the egg with scrapyd-client"
    )


def arguments_of(order: dict[str, Any]) -> list[str]:
    """The arguments of `scrapy` for an order of the broker."""
    words = ["crawl", str(order["spider"])]
    given = {"_job": order.get("job", ""), **order.get("arguments", {})}
    for option, values in (("-a", given), ("-s", order.get("settings", {}))):
        for name, value in values.items():
            words += [option, f"{name}={value}"]
    return words


def main(words: list[str] | None = None) -> None:
    """Runs the spider, or prints the names of all."""
    words = sys.argv[1:] if words is None else words
    try:
        order = json.loads(words[0]) if words and words[0].strip() else None
    except ValueError:
        order = {}
    if order is not None and not (isinstance(order, dict) and order.get("spider")):
        raise SystemExit('webloom-scrapy: expected an object in JSON that names a spider, like {"spider": "pages"}')
    folder = Path.cwd()
    sys.path.insert(0, str(folder))
    os.environ["SCRAPY_SETTINGS_MODULE"] = settings_module(folder)

    from scrapy.utils.project import get_project_settings

    settings = get_project_settings()
    if order is None:
        from scrapy.spiderloader import get_spider_loader

        print(SPIDERS_LINE + json.dumps(sorted(get_spider_loader(settings).list())), flush=True)
        return
    for name, value in (("SCRAPY_PROJECT", order.get("project", "")), ("SCRAPY_JOB", order.get("job", ""))):
        os.environ[name] = str(value)

    from scrapy.cmdline import execute

    execute(["scrapy", *arguments_of(order)], settings)


if __name__ == "__main__":
    main()

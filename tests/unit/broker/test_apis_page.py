"""`docs/apis.md` names every API of Kafka once: served, with its versions, or not served."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import kio.schema

from moldau.wire.apis import SERVED

PAGE = Path(__file__).parents[3] / "docs" / "apis.md"


def rows(section: str) -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def apis_of_kafka() -> dict[int, str]:
    """What kio knows, which is what Kafka's own schemas say, by key."""
    found = {}
    for module in pkgutil.iter_modules(kio.schema.__path__):
        if module.ispkg:
            package = importlib.import_module(f"kio.schema.{module.name}")
            versions = [each.name for each in pkgutil.iter_modules(package.__path__)]
            newest = max(versions, key=lambda name: int(name.removeprefix("v")))
            try:
                request = importlib.import_module(f"{package.__name__}.{newest}.request")
            except ModuleNotFoundError:
                continue  # records and headers
            name = "".join(part.capitalize() for part in module.name.split("_"))
            (key,) = {
                int(one.__api_key__)
                for one in vars(request).values()
                if hasattr(one, "__api_key__")
            }
            found[key] = name
    return found


def test_the_page_has_the_versions_that_are_served() -> None:
    served = {(str(each.key), "{} to {}".format(*each.advertised)) for each in SERVED}
    assert {(key, versions) for key, _, versions in rows("Served")} == served


def test_the_page_names_every_api_of_kafka_once() -> None:
    named = [(int(key), name) for key, name, _ in rows("Served")]
    for keys, names, _ in rows("Not served"):
        named += zip(map(int, keys.split(", ")), names.split(", "), strict=True)
    assert sorted(named) == sorted(apis_of_kafka().items())

"""What every page of the documentation has to keep: commands that exist, links that lead somewhere,
a place in the site. `tests/system/test_pages.py` runs what can be run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moldau.cli.main import build
from support.pages import PAGES, ROOT, SHELLS, blocks_of

ALL = sorted((*PAGES.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "deploy").rglob("*.md")))
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
END_OF_COMMAND = {"|", "||", "&&", ";", ">", ">>", "&", "<"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each `moldau …` in blocks for a shell, without what stands in brackets."""
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.language not in ("", "console", *SHELLS):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            for found in re.finditer(r"(?:^|[|;]\s*|\$ |&& )moldau (.*)", line):
                words = re.sub(r"[\[\]…]|\.\.\.", "", found[1].split(" # ")[0].split("  ")[0])
                try:
                    yield list(shlex.split(words, comments=True))
                except ValueError:  # the text goes on in the next line
                    yield words.split("'")[0].split()


def check(words: list[str], command: Any) -> str | None:
    """What is wrong with a command, or None."""
    path = ["moldau"]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            return None  # --help, --version
        if words[0] not in command.commands:
            return f"{' '.join(path)} has no {words[0]!r}"
        path.append(words[0])
        command = command.commands[words[0]]
        words = words[1:]
    known = {name for given in command.params for name in (*given.opts, *given.secondary_opts)}
    known |= {"--help", "-h"}
    for word in words:
        if word in END_OF_COMMAND:
            break
        option = word.split("=")[0]
        if re.match(r"--?[a-zA-Z]", option) and option not in known:
            return f"{' '.join(path)} has no {option}"
    return None


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_every_command_on_a_page_exists(page: Path) -> None:
    root = build()
    wrong = [problem for words in commands_of(page) if (problem := check(words, root))]
    assert wrong == []


def test_a_command_that_does_not_exist_is_found() -> None:
    root = build()
    assert check(["topics", "creates", "clicks"], root) == "moldau topics has no 'creates'"
    found = check(["topics", "create", "clicks", "--partition", "3"], root)
    assert found == "moldau topics create has no --partition"


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_every_link_leads_to_a_file(page: Path) -> None:
    """Headings are looked for by `make docs`."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", sorted(PAGES.rglob("*.md")), ids=name_of)
def test_a_page_of_the_site_links_to_nothing_outside_of_it(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    outside = [one for one in links if PAGES not in (page.parent / one).resolve().parents]
    assert outside == []


def test_every_page_has_a_place_in_the_site() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    placed = sorted(_places(site["nav"]))
    assert placed == sorted(str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md"))


def _places(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for place in entry.values():
            if isinstance(place, str):
                yield place
            else:
                yield from _places(place)


SOURCE = ROOT / "src" / "moldau"
PLACE = re.compile(r"`([a-z_]+(?:[./][a-z_]+)+)`")
DESIGN = [PAGES / name for name in ("architecture.md", "replication.md")]


def is_there(place: str) -> bool:
    """Whether a room, a module in it, or a name in that module is called so."""
    *folders, last = place.removesuffix(".py").replace("/", ".").split(".")
    room = SOURCE.joinpath(*folders)
    if (room / last).is_dir() or (room / f"{last}.py").is_file():
        return True
    module = room.with_suffix(".py")
    return module.is_file() and re.search(rf"\b{last}\b", module.read_text()) is not None


@pytest.mark.parametrize("page", DESIGN, ids=name_of)
def test_what_a_page_says_about_the_source_is_there(page: Path) -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    places = {found[1] for found in PLACE.finditer(page.read_text(encoding="utf-8"))}
    of_source = {place for place in places if re.split(r"[./]", place)[0] in rooms}
    assert of_source
    assert not {place for place in of_source if not is_there(place)}


def find_stale_places(path: Path, packages: set[str], options: str) -> Iterator[str]:
    """Names of modules in a source file, in backticks, that do not exist. `rules.x` means a rule of
    the module's own package or of one above it."""
    folders = [one.relative_to(SOURCE).as_posix() for one in path.parents if SOURCE in one.parents]
    for found in PLACE.finditer(path.read_text(encoding="utf-8")):
        place = found[1].replace("/", ".")
        first = place.split(".")[0]
        if first == "rules":
            candidates = [f"{folder.replace('/', '.')}.{place}" for folder in folders]
        elif first in packages and place not in options and not place.endswith(".pem"):
            candidates = [place, *(f"{folder.replace('/', '.')}.{place}" for folder in folders)]
        else:
            continue
        if not any(map(is_there, candidates)):
            line = path.read_text(encoding="utf-8")[: found.start()].count("\n") + 1
            yield f"{path.relative_to(ROOT)}:{line} {place}"


def test_docstrings_and_comments_name_modules_that_exist() -> None:
    packages = {one.name for one in SOURCE.iterdir() if one.is_dir()} - {"spark", "model"}
    options = (PAGES / "configuration.md").read_text(encoding="utf-8")
    stale = [
        place
        for path in sorted(SOURCE.rglob("*.py"))
        for place in find_stale_places(path, packages, options)
    ]
    assert stale == []


def test_a_module_that_is_gone_is_found() -> None:
    assert is_there("storage.log")
    assert is_there("storage.log.append")
    assert not is_there("storage.no_such_log")

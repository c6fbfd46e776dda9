"""Prints the figures of every package.

`--check` fails when a figure is above its limit. `--write` lowers the limits to the current
figures; it never raises one.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import asdict, fields

from census import LIMITS, Figures, Module, compute_figures, read_limits, read_modules

HEADINGS = {
    "modules": "modules",
    "lines": "lines",
    "median_lines": "median",
    "import_percent": "imports %",
    "inner_imports": "in functions",
    "small_with_one_importer": "small, 1 importer",
    "forwarders": "forwarders",
}


def print_figures(name: str, figures: Figures) -> None:
    cells = (f"{value:>{len(HEADINGS[key])}}" for key, value in asdict(figures).items())
    sys.stdout.write("  ".join((f"{name:14}", *cells)) + "\n")


def main(arguments: list[str]) -> None:
    modules = read_modules()
    figures, limits = compute_figures(modules), read_limits()
    if "--write" in arguments:
        lowered = {
            one.name: max(getattr(figures, one.name), getattr(limits, one.name))
            if one.name == "median_lines"
            else min(getattr(figures, one.name), getattr(limits, one.name))
            for one in fields(Figures)
        }
        LIMITS.write_text(json.dumps(lowered, indent=4) + "\n", encoding="utf-8")
    elif "--check" not in arguments:
        packages: dict[str, list[Module]] = defaultdict(list)
        for module in modules:
            packages[module.package].append(module)
        sys.stdout.write("  ".join((" " * 14, *HEADINGS.values())) + "\n")
        for name, part in sorted(packages.items(), key=lambda item: -len(item[1])):
            print_figures(name, compute_figures(part, modules))
        print_figures("all", figures)
    above = figures.find_above(limits)
    if "--check" in arguments and above:
        told = (f"{name} is {found}, at most {limit}" for name, (found, limit) in above.items())
        sys.exit(
            f"The source has grown above its limits: {'; '.join(told)}. Make it smaller, or raise "
            f"the limit in tests/census/{LIMITS.name} in a commit of its own that gives the reason."
        )


main(sys.argv[1:])

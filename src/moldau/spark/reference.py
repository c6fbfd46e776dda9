"""Renders the table of options in `docs/spark.md` from the declarations.

`python -m moldau.spark.reference` prints the table, `… reference docs/spark.md` puts it in its
place. A test fails while the committed page differs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moldau.config.option import AnyOption
from moldau.spark.options import SourceOptions

BEGIN: Final = "<!-- the table is generated: python -m moldau.spark.reference docs/spark.md -->\n"
END: Final = "<!-- end of the table -->\n"


def render() -> str:
    """The table, in the order of the declarations."""
    rows = [_row(one) for one in SourceOptions.declarations().values()]
    return "\n".join(["| option | default | what it says |", "|---|---|---|", *rows]) + "\n"


def renew(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{render()}{END}{after}"


def _row(declared: AnyOption) -> str:
    text = declared.default_text
    default = "" if text is None else f"`{text}`"
    documentation = declared.documentation.replace("|", "\\|")
    return f"| `{declared.name}` | {default} | {documentation} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table, or renew it in the file that is named."""
    if arguments:
        path = Path(arguments[0])
        path.write_text(renew(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(render())


if __name__ == "__main__":
    main(sys.argv[1:])

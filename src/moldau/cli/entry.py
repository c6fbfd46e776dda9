"""The entry point of the installed command: quiet from its first moment on.

Loading the command line takes a tenth of a second, and whoever presses Ctrl-C in it wants no
traceback. So until it is loaded, the signal ends the process without a word.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RARELY = (100_000, 20, 100)


def main() -> None:
    former = signal.getsignal(signal.SIGINT)
    gc.disable()  # what is imported stays; looking for cycles in it takes a tenth of the time
    if former is signal.default_int_handler:  # not where the program was started to ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # kio registers strategies wherever hypothesis is installed: 0.3 s and 16 MB that no command
    # has a use for. None makes its import fail, which kio expects.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    run = _load(sys.argv[1:])
    # The command imports what it needs, and soon ends: what it leaves to be collected is little.
    gc.set_threshold(*RARELY)
    gc.enable()
    signal.signal(signal.SIGINT, former)
    code = run()
    # The interpreter looks for cycles at its end, in all that was imported: a seventh of what a
    # short command takes. The process takes its memory along.
    gc.freeze()
    sys.exit(code)


def _load(words: Sequence[str]) -> Callable[[], int]:
    """What runs a command line; Typer is left out where it can be."""
    if words == ["--version"]:
        return _show_version
    from moldau.cli.plain_start import read_plain_start, run_plain_start

    given = read_plain_start(words)
    if given is not None:
        return lambda: run_plain_start(given)
    from moldau.cli.main import run

    return run


def _show_version() -> int:
    from moldau.cli.compiled_parts import describe_version
    from moldau.cli.exit_codes import run_to_the_end

    return run_to_the_end(lambda: print(describe_version()))  # noqa: T201 - the command's answer

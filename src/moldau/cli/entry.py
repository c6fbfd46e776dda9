"""The entry point of the installed command.

Loading the command line takes a tenth of a second. Ctrl-C during that time ends the process without
a traceback.
"""

from __future__ import annotations

import gc
import signal
import sys

RARELY = (100_000, 20, 100)


def main() -> None:
    former = signal.getsignal(signal.SIGINT)
    gc.disable()  # what is imported stays; looking for cycles in it takes a tenth of the time
    if former is signal.default_int_handler:  # not where the program was started to ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # kio registers strategies wherever hypothesis is installed: 0.3 s and 16 MB that no command
    # has a use for. None makes its import fail, which kio expects.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from moldau.cli.main import run

    # The command imports what it needs, and soon ends: what it leaves to be collected is little.
    gc.set_threshold(*RARELY)
    gc.enable()
    signal.signal(signal.SIGINT, former)
    code = run()
    # The interpreter looks for cycles at its end, in all that was imported: a seventh of what a
    # short command takes. The process takes its memory along.
    gc.freeze()
    sys.exit(code)

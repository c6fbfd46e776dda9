"""The entry point of the installed command: quiet from its first moment on.

Loading the command line takes a tenth of a second, and whoever presses Ctrl-C in it wants no
traceback. So until it is loaded, the signal ends the process without a word.
"""

from __future__ import annotations

import gc
import signal


def main() -> None:
    former = signal.getsignal(signal.SIGINT)
    gc.disable()  # what is imported stays; looking for cycles in it takes a tenth of the time
    if former is signal.default_int_handler:  # not where the program was started to ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from moldau.cli.main import main as run_command_line

    gc.enable()
    signal.signal(signal.SIGINT, former)
    run_command_line()

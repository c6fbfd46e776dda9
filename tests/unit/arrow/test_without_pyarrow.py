"""The core does without pyarrow, and says what to do where it cannot."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = "import sys; sys.modules['pyarrow'] = None; "


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_nothing_of_moldau_imports_pyarrow_before_it_is_needed() -> None:
    program = (
        "import sys, moldau, moldau.cli.main, moldau.client.read_table; moldau.read_table; "
        "print('pyarrow' in sys.modules)"
    )
    assert run(program) == "False\n"


def test_reading_a_table_says_how_to_install_pyarrow() -> None:
    for call in ("read_table", "read_batches"):
        said = run(f"{BLOCKED}import moldau; moldau.{call}('clicks')")
        assert said.endswith(
            "moldau.errors.MissingExtraError: Arrow tables need pyarrow, which is not installed: "
            "pip install 'moldau[arrow]'\n"
        )


def test_the_missing_extra_is_an_import_error() -> None:
    program = f"{BLOCKED}\ntry:\n import moldau.arrow\nexcept ImportError: print('told')"
    assert run(program) == "told\n"

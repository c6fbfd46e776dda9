"""Which run of this machine it is: another one after every restart of the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MACOS = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
_TIMEOUT_SECONDS = 5.0


def read_boot_id() -> str:
    """Empty where the machine does not tell: then it may have been restarted at any time."""
    try:
        if _LINUX.exists():
            return _LINUX.read_text(encoding="ascii").strip()
        asked = subprocess.run(  # noqa: S603 a fixed command
            _MACOS, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
        return asked.stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""

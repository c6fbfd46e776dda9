"""`make audit`: are there known vulnerabilities in what Moldau installs? Asks pip-audit.

Looked at are the core and all extras, as they are installed, with all that they bring along. The
database of vulnerabilities is on the network. Where it cannot be reached pip-audit passes over what
it cannot ask about and finds nothing; here that is told in the last line: NOT AUDITED. The exit
code is 0 then, with --strict 2; and 1 where something was found.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SECONDS = 300


def installed_closure(root: str) -> dict[str, str]:
    """Names and versions of all that a distribution asks for, extras included, as installed."""
    found: dict[str, str] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # of an extra or a platform that is not here
        found[name] = one.version
        for requirement in one.requires or ():
            match = _NAME.match(requirement)
            is_other_extra = "extra ==" in requirement and name != root
            if match is not None and not is_other_extra:
                waiting.append(match[0])
    found.pop(root)
    return found


def ask(packages: dict[str, str]) -> list[dict[str, object]] | None:
    """What pip-audit says of each; None when it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(file), "--no-deps"]
        command += ["--disable-pip", "--progress-spinner", "off", "--timeout", "20"]
        command += ["--format", "json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
            found: list[dict[str, object]] = json.loads(done.stdout)["dependencies"]
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            return None
        return found


def main() -> int:
    packages = installed_closure("moldau")
    told = ask(packages) or []
    faulty = [one for one in told if one.get("vulns")]
    known = [one for one in told if "skip_reason" not in one]
    lines = [f"{one['name']} {one['version']}: {json.dumps(one['vulns'])}" for one in faulty]
    lines.append(f"audited: {len(known)} of {len(packages)} packages, {len(faulty)} to be mended")
    if len(known) < len(packages):
        lines.append(
            f"NOT AUDITED: {len(packages) - len(known)} packages; the database of vulnerabilities "
            "cannot be asked about them from here"
        )
    sys.stdout.write("\n".join(lines) + "\n")
    if faulty:
        return 1
    return 2 if len(known) < len(packages) and "--strict" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())

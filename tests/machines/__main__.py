"""Runs the tests on a fresh Debian, which has another Python: `python tests/machines SUITE`.

    python tests/machines trixie                      Python 3.13, no Java
    python tests/machines sid                         Python 3.14, no Java
    python tests/machines bookworm --java --user      Python 3.11.2, Java 17, as an ordinary user
    python tests/machines trixie -- make check        another command than `make test`

The system is installed by debootstrap into a temporary folder with Python, a C compiler, make and
git, and nothing else. The commit that is checked out is cloned into it. Mounts and processes live
in namespaces of their own and end with the command. Package mirrors, certificates and the settings
of pip are those of this machine. Needs root, debootstrap and unshare.

With `--keep DIR` the system is installed into DIR, or found there, and is kept.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = "python3,python3-venv,python3-dev,gcc,make,git,ca-certificates,procps"
JAVA_PACKAGE = "openjdk-17-jre-headless"
USER = "tester"
SETTINGS_OF_PIP = re.compile("PIP_(CERT|DEFAULT_TIMEOUT|INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST)")
FILES_OF_THIS_MACHINE = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
ENTER = """
set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
mount --bind "$1/dev/pts/ptmx" "$1/dev/ptmx"
mount -t tmpfs tmpfs "$1/dev/shm"
shift; exec chroot "$@"
"""
"""Runs in a mount namespace of its own, so nothing has to be unmounted."""


def main(arguments: Sequence[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = _parser().parse_args(arguments[:end])
    command = arguments[end + 1 :] or ("make", "test")
    if options.keep:
        return run(options, command, Path(options.keep).absolute())
    with tempfile.TemporaryDirectory(prefix=f"moldau-{options.suite}-") as folder:
        return run(options, command, Path(folder) / "system")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python tests/machines", epilog="After `--`: the command to run instead of make test."
    )
    parser.add_argument("suite", help="release of Debian: bookworm, trixie, sid")
    parser.add_argument("--java", action="store_true", help=f"also install {JAVA_PACKAGE}")
    parser.add_argument("--user", action="store_true", help="run as an ordinary user, not as root")
    parser.add_argument("--keep", metavar="DIR", help="install the system into DIR and keep it")
    return parser


def run(options: argparse.Namespace, command: Sequence[str], system: Path) -> int:
    install_system(options.suite, system)
    for name in FILES_OF_THIS_MACHINE:
        if Path("/", name).exists():
            shutil.copy(Path("/", name), system / name)
    if options.java and not (system / "usr/bin/java").exists():
        enter(
            system, ("apt-get", "install", "-qq", "-y", JAVA_PACKAGE), quiet=True
        ).check_returncode()
    home = "root"
    if options.user:
        home = f"home/{USER}"
        if not (system / home).exists():
            enter(system, ("useradd", "--create-home", USER)).check_returncode()
    clone = system / home / "moldau"
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", PROJECT, clone], check=True)
    owner = (system / home).stat()
    enter(system, ("chown", "-R", f"{owner.st_uid}:{owner.st_gid}", f"/{home}")).check_returncode()
    script = 'cd "$1"; shift; exec "$@"'
    return enter(
        system,
        ("bash", "-c", script, "bash", f"/{home}/moldau", *command),
        home=f"/{home}",
        user=f"{owner.st_uid}:{owner.st_gid}",
    ).returncode


def install_system(suite: str, system: Path) -> None:
    if (system / "usr/bin/python3").exists():
        return
    system.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(system)]
    done = subprocess.run([*command, *find_mirror()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"debootstrap {suite} failed:\n{done.stdout[-1000:]}{done.stderr}")


def find_mirror() -> list[str]:
    """The mirror of this machine. Without one, debootstrap uses Debian's."""
    apt = Path("/etc/apt")
    for path in (*apt.glob("sources.list.d/*.sources"), *apt.glob("sources.list")):
        found = re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S+)", path.read_text(), re.MULTILINE)
        if found:
            return [found[1]]
    return []


def enter(
    system: Path,
    command: Sequence[str],
    *,
    home: str = "/root",
    user: str = "0:0",
    quiet: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "HOME": home,
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        **{name: os.environ[name] for name in ("CI", "JOBS", "TERM") if name in os.environ},
        **{name: text for name, text in os.environ.items() if SETTINGS_OF_PIP.fullmatch(name)},
    }
    settings = [f"{name}={text}" for name, text in environment.items()]
    chroot = [f"--userspec={user}", str(system), "env", "-i", *settings, *command]
    return subprocess.run(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "bash",
            "-c",
            ENTER,
            "bash",
            str(system),
            *chroot,
        ],
        stdout=subprocess.DEVNULL if quiet else None,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

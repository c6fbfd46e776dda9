"""A broker's clock goes on while its machine sleeps (REP-4).

A sleeping machine cannot be had in a test, but a time namespace can: in it, the two clocks of Linux
differ as they do after a sleep of a day.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SLEPT_SECONDS = 86_400
IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--fork", "--time", "--boottime"]
COMPARE = """
import time
from moldau.clock import MachineClock, SystemClock
print(MachineClock().monotonic() - time.monotonic(), SystemClock().monotonic() - time.monotonic())
"""
LEASE = """
from moldau.broker.run import real_ports
from moldau.clock import SystemClock
ports = real_ports()
print(ports.clock.monotonic() - SystemClock().monotonic())
ports.close()
"""


def after_a_sleep(program: str) -> list[float]:
    command = [*IN_NAMESPACE, str(SLEPT_SECONDS)]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"]).returncode:
        pytest.skip("no time namespaces here")
    command += [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(word) for word in found.stdout.split()]


def test_the_clock_of_a_machine_counts_its_sleep_and_that_of_a_client_does_not() -> None:
    machine, system = after_a_sleep(COMPARE)
    assert machine == pytest.approx(SLEPT_SECONDS, abs=60)
    assert system == pytest.approx(0, abs=60)


def test_a_broker_measures_its_lease_with_the_clock_that_counts_the_sleep() -> None:
    (ahead,) = after_a_sleep(LEASE)
    assert ahead == pytest.approx(SLEPT_SECONDS, abs=60)

"""`moldau[security]`: `secure init` makes keys, and a secured broker lets in who may come in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import moldau
import moldau.testing

command = [sys.executable, "-m", "moldau", "secure", "init", "--out", "keys"]
subprocess.run(command, check=True)
assert (Path("keys") / "client.properties").exists()
with moldau.testing.secured_broker() as broker:
    user = next(iter(broker.users))
    options = {name.replace(".", "_"): value for name, value in broker.client_options(user).items()}
    with moldau.Producer(broker.bootstrap, **options) as producer:
        assert producer.send("clicks", b"home").result(60).offset == 0

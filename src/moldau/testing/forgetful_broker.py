"""`moldau start` on a machine that can lose its power: `python -m moldau.testing.forgetful_broker`.

The same options, and more in front of them: the journal of its files (`journaled_files`), how long
its disk takes for a sync, and a file with the boot id, which changes with each power loss and with
nothing else. Everything besides files and boot id is as in production.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path

from moldau.broker.run import real_ports, run_broker
from moldau.broker.server import BrokerServer
from moldau.cli.reporting import set_up_logging
from moldau.cli.start_run import gather_settings
from moldau.config.broker_options import BrokerOptions
from moldau.testing.journaled_files import JournaledFiles


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--boot-id", type=Path, required=True)
    parser.add_argument("--sync-seconds", type=float, default=0.0)
    parser.add_argument("start", choices=["start"])
    parser.add_argument("--listen")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--broker-id", type=int)
    parser.add_argument("--zookeeper")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    settings = gather_settings(
        config=None,
        sets=given.set,
        data_dir=given.data_dir,
        listen=given.listen,
        broker_id=given.broker_id,
        zookeeper=given.zookeeper,
    )
    set_up_logging()
    boot_id = given.boot_id.read_text(encoding="ascii")
    ports = replace(
        real_ports(options=BrokerOptions.resolve(settings)),
        files=JournaledFiles(given.journal, sync_seconds=given.sync_seconds),
        boot_id=lambda: boot_id,
    )
    asyncio.run(run_broker(settings, _announce, ports))


def _announce(broker: BrokerServer) -> None:
    print(f"listening on {broker.bootstrap}", flush=True)  # noqa: T201 as `moldau start` does


if __name__ == "__main__":
    main()

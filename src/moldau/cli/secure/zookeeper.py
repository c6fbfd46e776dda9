"""`moldau secure zookeeper`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moldau.coordination.zookeeper_access import AccessMigration
    from moldau.coordination.zookeeper_settings import ZookeeperSettings

_NAMED = 5


class Access(StrEnum):
    """Kafka's words."""

    SECURE = "secure"
    UNSECURE = "unsecure"


def migrate_zookeeper(
    config: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A broker's server.properties: who brokers are for ZooKeeper (zookeeper.ssl.*, "
            "zookeeper.auth.*).",
        ),
    ],
    access: Annotated[
        Access,
        typer.Option(
            "--acl",
            metavar="secure|unsecure",
            help="secure: only brokers may write. unsecure: everybody.",
        ),
    ] = Access.SECURE,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...[/PATH]", help="Where it is.", show_default="what the file says"
        ),
    ] = None,
) -> None:
    """Give the nodes that a cluster has in ZooKeeper the access lists of zookeeper.set.acl.

    New nodes get them from brokers with zookeeper.set.acl=true; this is for those from before, as
    Kafka's zookeeper-security-migration. Brokers may run meanwhile. Start it again if it is cut
    off: what is done is left alone.

    To secure a cluster that runs, start the brokers anew, one after the other, with
    zookeeper.ssl.* or zookeeper.auth.*; once more, with zookeeper.set.acl=true; then do this. Back:
    zookeeper.set.acl=false on all brokers, then this with --acl unsecure.
    """
    import asyncio

    from moldau.errors import ConfigurationError

    settings = _read_settings(config, zookeeper, is_protected=access is Access.SECURE)
    done = asyncio.run(_migrate(settings, is_protected=access is Access.SECURE))
    if done.seen <= bool(settings.root) and not done.refused:  # a path is a node itself
        raise ConfigurationError(
            f"no cluster has nodes at {','.join(settings.servers)}{settings.root}; what brokers "
            "have as zookeeper.connect, with the path at its end, is what --zookeeper takes"
        )
    word = "belong to the brokers" if access is Access.SECURE else "are open to everybody"
    typer.echo(f"{done.seen:,} nodes {word}; {done.changed:,} of them were changed")
    if done.refused:
        more = len(done.refused) - _NAMED
        names = ", ".join(sorted(done.refused)[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise ConfigurationError(
            f"{len(done.refused)} nodes belong to somebody else, and are as they were: {names}. "
            "Do this again with the credential or the certificate that made them"
        )


def _read_settings(config: Path, connect: str | None, *, is_protected: bool) -> ZookeeperSettings:
    from moldau.broker.zookeeper_coordination import zookeeper_settings
    from moldau.cli.start_settings import gather_settings
    from moldau.config.broker_options import BrokerOptions
    from moldau.errors import ConfigurationError

    static = gather_settings(
        config=config, sets=(), data_dir=None, listen=None, broker_id=None, zookeeper=connect
    )
    options = BrokerOptions.resolve({**static, "zookeeper.set.acl": str(is_protected).lower()})
    if not options.zookeeper_connect:
        raise ConfigurationError(f"{config} has no zookeeper.connect; name it with --zookeeper")
    return zookeeper_settings(options.zookeeper_connect, options)


async def _migrate(settings: ZookeeperSettings, *, is_protected: bool) -> AccessMigration:
    from moldau.clock import SystemClock
    from moldau.cluster.store_roots import STORE_ROOTS
    from moldau.coordination.tree import ROOT
    from moldau.coordination.zookeeper import ZookeeperSession
    from moldau.coordination.zookeeper_access import AccessMigration
    from moldau.workers import ThreadWorkers

    workers = ThreadWorkers(1)
    try:
        session = await ZookeeperSession.open(settings, clock=SystemClock(), workers=workers)
        try:
            migration = AccessMigration(session, is_protected=is_protected)
            roots = list(STORE_ROOTS)
            if settings.root:  # all below it is the cluster's
                roots = [ROOT, *(f"/{name}" for name in await session.children(ROOT))]
            await migration.run(roots)
            return migration
        finally:
            await session.close()
    finally:
        workers.close()

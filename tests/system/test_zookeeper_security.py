"""Real ZooKeeper servers that speak TLS, want certificates, and know their users."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.broker.ports import zookeeper_settings
from moldau.clock import SystemClock
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import NoAccessError, StoreLostError
from moldau.coordination.zookeeper.client import AccessMigration, ZookeeperClient
from moldau.coordination.zookeeper.server import ServerSecurity
from moldau.errors import StartupError
from moldau.security.certificates import issue, make_authority, to_pkcs12
from moldau.workers import ThreadWorkers
from support.broker_process import moldau_command
from support.waiting import PATIENCE_SECONDS
from support.zookeeper import Zookeeper, require_zookeeper, running_ensemble

HOSTS = ("127.0.0.1", "localhost")
NODES = 300  # more answers than fit into one record of TLS


class Secured(NamedTuple):
    servers: Zookeeper
    folder: Path

    def options(self, **more: str) -> dict[str, str]:
        """Of a broker with a certificate that the servers trust."""
        names = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.folder / "ca.pem"),
            "zookeeper.ssl.keystore.location": str(self.folder / "broker.pem"),
            "zookeeper.connection.timeout.ms": "20000",
            **{f"zookeeper.{name}": value for name, value in names.items()},
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Three servers with TLS among themselves, too."""
    require_zookeeper()
    folder = tmp_path_factory.mktemp("zookeeper-security")
    authority, stranger = make_authority("ours"), make_authority("a stranger")
    for name, signed_by, hosts in (
        ("server", authority, HOSTS),
        ("broker", authority, ()),
        ("other", authority, ()),
        ("stranger", stranger, HOSTS),
    ):
        one = issue(signed_by, name, hosts)
        (folder / f"{name}.pem").write_text(one.certificate + one.key)
        (folder / f"{name}.p12").write_bytes(to_pkcs12(one, signed_by, "changeit"))
    (folder / "ca.pem").write_text(authority.certificate)
    (folder / "stranger-ca.pem").write_text(stranger.certificate)
    (folder / "jaas.conf").write_text(
        "Server {\n org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        ' user_broker="secret of brokers";\n};\n'
    )
    stores = ServerSecurity(key_store=folder / "server.pem", trust_store=folder / "ca.pem")
    with running_ensemble(
        3,
        security=stores,
        lines=["authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"],
        java_properties={"java.security.auth.login.config": str(folder / "jaas.conf")},
    ) as servers:
        yield Secured(servers, folder)


@contextlib.asynccontextmanager
async def session_with(connect: str, options: dict[str, str]) -> AsyncIterator[ZookeeperClient]:
    workers = ThreadWorkers(2)
    try:
        settings = zookeeper_settings(connect, BrokerOptions.resolve(options))
        session = await ZookeeperClient.open(settings, clock=SystemClock(), workers=workers)
        try:
            yield session
        finally:
            await session.close()
    finally:
        workers.close()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_SECONDS))


async def move(session: ZookeeperClient) -> None:
    """Lose the connection, and come back on another one."""
    session._session.cut()
    while True:
        with contextlib.suppress(StoreLostError):
            await session.get("/")
            if session._session.is_attached:
                return
        await asyncio.sleep(0.01)


async def work(session: ZookeeperClient) -> None:
    """Many answers in flight: none of them may wait for the next in the buffers of TLS."""
    await asyncio.gather(*(session.create(f"/n{i}", b"x" * 200) for i in range(NODES)))
    found = await session.get_many([f"/n{i}" for i in range(NODES)])
    assert all(node is not None and node.data == b"x" * 200 for node in found)


def test_a_session_over_tls_works_and_moves_to_another_server(secured: Secured) -> None:
    async def story() -> None:
        connect = secured.servers.fresh_connect()
        async with session_with(connect, secured.options()) as session:
            before = session.session_id
            await work(session)
            await move(session)
            assert await session.get("/n1") is not None
            assert session.session_id == before

    run(story())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_key_stores_of_java_and_both_versions_of_tls_do(secured: Secured, version: str) -> None:
    async def story() -> None:
        options = secured.options(
            ssl_keystore_location=str(secured.folder / "broker.p12"),
            ssl_keystore_password="changeit",
            ssl_keystore_type="PKCS12",
            ssl_truststore_location=str(secured.folder / "broker.p12"),
            ssl_truststore_password="changeit",
            ssl_enabled_protocols=version,
            clientCnxnSocket="org.apache.zookeeper.ClientCnxnSocketNetty",
        )
        async with session_with(secured.servers.fresh_connect(), options) as session:
            connection = session._session._handler._socket
            assert connection.version() == version  # type: ignore[union-attr]
            await session.create("/a", b"1")

    run(story())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ssl_truststore_location": "stranger-ca.pem"}, "certificate verify failed"),
        ({"ssl_keystore_location": "stranger.pem"}, "no session with ZooKeeper"),
        ({"ssl_client_enable": "false"}, "set zookeeper.ssl.client.enable=true"),
        ({"auth_scheme": "sasl", "auth_credential": "broker:wrong"}, "it refuses zookeeper.auth"),
        ({"ssl_keystore_location": "nothing.pem"}, r"zookeeper\.ssl\.\*.*nothing\.pem"),
    ],
)
def test_who_is_not_trusted_gets_no_session_and_is_told_why(
    secured: Secured, more: dict[str, str], said: str
) -> None:
    async def story() -> None:
        given = {
            name: str(secured.folder / value) if value.endswith(".pem") else value
            for name, value in more.items()
        }
        told = ""
        for milliseconds in ("2500", "20000"):  # a busy server may say nothing for a while
            options = secured.options(**given) | {"zookeeper.connection.timeout.ms": milliseconds}
            with pytest.raises(StartupError) as caught:
                async with session_with(secured.servers.fresh_connect(), options):
                    pass
            told = str(caught.value)
            if re.search(said, told):
                return
        raise AssertionError(told)

    run(story())


@pytest.mark.parametrize(
    "owner",
    [
        {},  # the certificate
        {"auth_scheme": "sasl", "auth_credential": "broker:secret of brokers"},
        {"auth_scheme": "digest", "auth_credential": "broker:any word"},
    ],
    ids=["certificate", "sasl", "digest"],
)
def test_nodes_belong_to_who_made_them(secured: Secured, owner: dict[str, str]) -> None:
    async def story() -> None:
        connect = secured.servers.fresh_connect()
        options = secured.options(set_acl="true", **owner)
        other = secured.options(ssl_keystore_location=str(secured.folder / "other.pem"))
        async with (
            session_with(connect, options) as session,
            session_with(connect, other) as stranger,
        ):
            await session.create("/config/users/alice", b"password", parents=True)
            await session.create("/brokers/topics/t", b"1", parents=True)
            while await stranger.get("/brokers/topics/t") is None:
                await asyncio.sleep(0.02)  # its server hears of it a moment later
            for attempt in (
                lambda: stranger.get("/config/users/alice"),
                lambda: stranger.set("/brokers/topics/t", b"2"),
                lambda: stranger.create("/brokers/topics/u"),
                lambda: stranger.create("/controller"),
            ):
                with pytest.raises(NoAccessError):
                    await attempt()
        async with session_with(connect, options) as later:
            await later.set("/config/users/alice", b"another")

    run(story())


def test_certificates_are_read_anew_for_each_connection(secured: Secured, tmp_path: Path) -> None:
    async def story() -> None:
        own = tmp_path / "broker.pem"
        shutil.copy(secured.folder / "broker.pem", own)
        options = secured.options(ssl_keystore_location=str(own))
        async with session_with(secured.servers.fresh_connect(), options) as session:
            before = session.session_id
            own.write_text("no certificate")  # the former stays in force
            await move(session)
            await session.create("/a", b"1")
            own.unlink()
            shutil.copy(secured.folder / "other.pem", own)
            await move(session)
            await session.create("/b", b"1")
            assert session.session_id == before

    run(story())


# Nodes that were there before zookeeper.set.acl

ROOTS = ("/", "/brokers", "/config", "/not-there")
NODE_PATHS = ("/brokers/topics/t", "/config/users/alice", "/config/topics/t", "/brokers/ids/1")


async def migrate(
    session: ZookeeperClient, roots: tuple[str, ...] = ROOTS, *, is_protected: bool = True
) -> AccessMigration:
    migration = AccessMigration(session, is_protected=is_protected)
    await migration.run(roots)
    return migration


async def may_write(session: ZookeeperClient, path: str) -> bool:
    try:
        await session.set(path, b"2")
    except NoAccessError:
        return False
    return True


async def may_read(session: ZookeeperClient, path: str) -> bool:
    try:
        await session.get(path)
    except NoAccessError:
        return False
    return True


@pytest.mark.parametrize(
    "owner",
    [
        {},  # the certificate
        {"auth_scheme": "sasl", "auth_credential": "broker:secret of brokers"},
        {"auth_scheme": "digest", "auth_credential": "broker:any word"},
    ],
    ids=["certificate", "sasl", "digest"],
)
def test_nodes_from_before_are_protected_and_opened_again(
    secured: Secured, owner: dict[str, str]
) -> None:
    async def story() -> None:
        connect = secured.servers.fresh_connect()
        other = secured.options(ssl_keystore_location=str(secured.folder / "other.pem"))
        async with (
            session_with(connect, secured.options(**owner)) as before,
            session_with(connect, secured.options(set_acl="true", **owner)) as broker,
            session_with(connect, other) as stranger,
        ):
            for path in NODE_PATHS[:-1]:
                await before.create(path, b"1", parents=True)
            await before.create(NODE_PATHS[-1], ephemeral=True, parents=True)
            nodes = 11  # with those above them, and the cluster's own root
            # Somebody began it and was cut off.
            assert (await migrate(broker, ("/config",))).changed == 5
            first = await migrate(broker)
            assert (first.seen, first.changed, first.refused) == (nodes, nodes - 5, [])
            again = await migrate(broker)
            assert (again.seen, again.changed) == (nodes, 0)
            await stranger.call("/", lambda client, path: client.sync_async(path))
            for path in NODE_PATHS:
                assert not await may_write(stranger, path)
                assert await may_read(stranger, path) == (path != "/config/users/alice")
                assert await may_write(before, path)
            with pytest.raises(NoAccessError):
                await stranger.create("/mine")
            refused = await migrate(stranger, ("/config",), is_protected=False)
            assert refused.refused == ["/config"]
            opened = await migrate(before, is_protected=False)
            assert (opened.seen, opened.changed) == (nodes, nodes)
            assert (await migrate(before, is_protected=False)).changed == 0
            await stranger.call("/", lambda client, path: client.sync_async(path))
            for path in NODE_PATHS:
                assert await may_write(stranger, path)
                assert await may_read(stranger, path)

    run(story())


def test_the_command_protects_a_cluster_and_opens_it_again(
    secured: Secured, tmp_path: Path
) -> None:
    async def make(connect: str) -> None:
        async with session_with(connect, secured.options()) as session:
            for number in range(NODES):
                await session.create(f"/brokers/topics/t{number}", b"1", parents=True)

    connect = secured.servers.fresh_connect()
    run(make(connect))
    file = tmp_path / "server.properties"
    settings = {**secured.options(), "zookeeper.connect": connect}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    file.chmod(0o600)
    for words, told in (
        (["--acl", "secure"], f"{NODES + 3} nodes belong to the brokers; {NODES + 3} of them"),
        ([], f"{NODES + 3} nodes belong to the brokers; 0 of them"),
        (["--acl", "unsecure"], f"{NODES + 3} nodes are open to everybody; {NODES + 3} of them"),
    ):
        done = subprocess.run(
            moldau_command("secure", "zookeeper", "--config", str(file), *words),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(told)


def test_the_command_says_where_no_cluster_is(secured: Secured, tmp_path: Path) -> None:
    connect = secured.servers.fresh_connect()
    file = tmp_path / "server.properties"
    settings = {**secured.options(), "zookeeper.connect": connect}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    file.chmod(0o600)
    done = subprocess.run(
        moldau_command("secure", "zookeeper", "--config", str(file)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 1
    assert f"no cluster has nodes at {connect};" in done.stderr

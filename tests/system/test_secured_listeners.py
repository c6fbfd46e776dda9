"""TLS and SASL with the clients that people use: right and wrong credentials and certificates."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import subprocess
import time
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaConnectionError as AioConnectionError
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa

import moldau
from moldau.client.admin.values import ConfigChange, ConfigResource, ResourceType
from moldau.errors import (
    ConfigurationError,
    InvalidConfigError,
    MoldauError,
    SaslAuthenticationError,
    StartupError,
    TlsHandshakeError,
    UnsupportedSaslMechanismError,
)
from moldau.security.certificates import issue, make_authority, to_pkcs12
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
from support.bearer_tokens import TokenIssuer, unsigned
from support.broker_process import moldau_command
from support.waiting import eventually

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
COUNT = 20
LISTENERS = {
    "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,OPEN://127.0.0.1:0,"
    "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "OPEN:SSL",
    "listener.name.ssl.ssl.client.auth": "required",
    "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
    "connection.failed.authentication.delay.ms": "10",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(LISTENERS, folder=tmp_path_factory.mktemp("secured")) as running:
        yield running


def write_and_read(bootstrap: str, options: Mapping[str, str], topic: str) -> None:
    with moldau.Producer(bootstrap, **options) as producer:
        for number in range(COUNT):
            producer.send(topic, value=b"%d" % number * 5_000)
    arguments = {"auto_offset_reset": "earliest", **options}
    with moldau.Consumer(bootstrap, topics=[topic], group=topic, **arguments) as consumer:
        found = [record.value[:1] for _, record in zip(range(COUNT), consumer, strict=False)]
    assert found == [b"%d" % number for number in range(10)] + [b"1"] * 10


def test_a_table_is_read_over_sasl_ssl(broker: SecuredBroker) -> None:
    options = broker.client_options("alice")
    with moldau.Producer(broker.bootstrap, **options) as producer:
        producer.send_many("a-table", [b"1", b"2"]).result()
    table = moldau.read_table("a-table", bootstrap=broker.bootstrap, **options)
    assert table["value"].to_pylist() == [b"1", b"2"]
    named = {name.replace(".", "_"): value for name, value in options.items()}
    (batch,) = moldau.read_batches("a-table", bootstrap=broker.bootstrap, **named)
    assert batch.num_rows == 2
    with pytest.raises(ConfigurationError, match="no_such"):
        moldau.read_table("a-table", bootstrap=broker.bootstrap, no_such="1")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_client_with_users(broker: SecuredBroker, mechanism: str) -> None:
    write_and_read(broker.bootstrap, broker.client_options("alice", mechanism), f"own-{mechanism}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_client_with_a_wrong_password_hears_so_at_once(
    broker: SecuredBroker, mechanism: str
) -> None:
    options = broker.client_options("alice", mechanism)
    options["sasl.jaas.config"] = options["sasl.jaas.config"].replace("alice-secret", "guess")
    with (
        moldau.Admin(broker.bootstrap, **options) as admin,
        pytest.raises(SaslAuthenticationError, match="invalid credentials"),
    ):
        admin.list_topics()


def test_a_mechanism_that_is_not_enabled(broker: SecuredBroker) -> None:
    options = broker.client_options("alice") | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{broker.authority_file}",
    }
    with (
        moldau.Admin(broker.bootstrap, **options) as admin,
        pytest.raises(UnsupportedSaslMechanismError, match="it has PLAIN, SCRAM-SHA-256"),
    ):
        admin.list_topics()


def test_sasl_without_tls(broker: SecuredBroker) -> None:
    jaas = broker.client_options("alice")["sasl.jaas.config"]
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": jaas}
    with (
        moldau.Admin(broker.address_of("SASL_PLAINTEXT"), **options) as admin,
        pytest.raises(SaslAuthenticationError),  # this listener has no users of its own
    ):
        admin.list_topics()


def test_client_certificates_in_pem_files(broker: SecuredBroker) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(broker.authority_file),
        "ssl.keystore.location": str(broker.issue_certificate("bob")),
    }
    write_and_read(broker.address_of("SSL"), options, "certificates")


def test_client_certificates_as_texts_and_as_pkcs12(broker: SecuredBroker, tmp_path: Path) -> None:
    identity = issue(broker.authority, "carol")
    texts = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": broker.authority.certificate.replace("\n", " "),
        "ssl.keystore.certificate.chain": identity.certificate,
        "ssl.keystore.key": identity.key.replace("\n", " "),
    }
    store = tmp_path / "carol.p12"
    store.write_bytes(to_pkcs12(identity, broker.authority, "word"))
    stored = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": "word",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "word",
    }
    for options in (texts, stored):
        with moldau.Admin(broker.address_of("SSL"), **options) as admin:
            assert admin.describe_cluster().brokers


def test_broker_and_commands_without_cryptography_say_what_reads_pkcs12(tmp_path: Path) -> None:
    absent = tmp_path / "absent" / "cryptography"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('it is not installed')\n")
    authority = make_authority("authority")
    store = tmp_path / "store.p12"
    store.write_bytes(to_pkcs12(issue(authority, "broker"), authority, "word"))
    settings = {"ssl.keystore.location": str(store), "ssl.keystore.password": "word"}
    file = tmp_path / "client.properties"
    client = {"security.protocol": "SSL", **settings}
    file.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
    listener = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    start = ["start", "--data-dir", str(tmp_path / "data")]
    for name, value in {**listener, **settings}.items():
        start += ["--set", f"{name}={value}"]
    listing = ["topics", "list", "--bootstrap", "127.0.0.1:1", "--command-config", str(file)]
    for words in (start, listing):
        done = subprocess.run(
            moldau_command(*words),
            env={**os.environ, "PYTHONPATH": str(absent.parent)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert f"{store} is not PEM" in done.stderr
        assert "pip install 'moldau[security]'" in done.stderr


def test_a_client_without_a_certificate_is_refused(broker: SecuredBroker) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(broker.authority_file),
    }
    soon = {**options, "default.api.timeout.ms": "3000"}
    with moldau.Admin(broker.address_of("SSL"), **soon) as admin, pytest.raises(MoldauError):
        admin.list_topics()
    with moldau.Admin(broker.address_of("OPEN"), **options) as admin:
        assert admin.describe_cluster().brokers


def test_a_certificate_of_another_authority_is_refused(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    stranger = make_authority("stranger")
    identity = issue(stranger, "mallory")
    store = tmp_path / "mallory.pem"
    store.write_text(identity.certificate + identity.key)
    options = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(broker.authority_file),
        "ssl.keystore.location": str(store),
        "default.api.timeout.ms": "3000",
    }
    with moldau.Admin(broker.address_of("SSL"), **options) as admin, pytest.raises(MoldauError):
        admin.list_topics()


def test_who_speaks_tls_where_there_is_none_or_none_where_there_is_hears_so(
    broker: SecuredBroker,
) -> None:
    secured = {"security.protocol": "SSL", "default.api.timeout.ms": "3000"}
    with (
        moldau.Admin(broker.address_of("SASL_PLAINTEXT"), **secured) as admin,
        pytest.raises(MoldauError, match="in the TLS handshake; the listener may have no TLS"),
    ):
        admin.list_topics()
    with (
        moldau.Admin(broker.address_of("SSL"), default_api_timeout_ms=3000) as admin,
        pytest.raises(MoldauError, match="it may want TLS or SASL"),
    ):
        admin.list_topics()


def test_a_broker_that_is_not_trusted_is_not_talked_to(broker: SecuredBroker) -> None:
    options = broker.client_options("alice")
    del options["ssl.truststore.location"]
    with (
        moldau.Admin(broker.bootstrap, **options) as admin,
        pytest.raises(TlsHandshakeError, match="not to be trusted"),
    ):
        admin.list_topics()


@pytest.mark.parametrize(
    ("hosts", "days", "words"),
    [
        (("other.example.com",), 30, "mismatch"),
        (("localhost", "127.0.0.1"), 1, "expired"),
    ],
)
def test_wrong_host_names_and_expired_certificates(
    tmp_path: Path, hosts: tuple[str, ...], days: int, words: str
) -> None:
    authority = make_authority("old")
    long_ago = datetime.now(UTC) - timedelta(days=20)
    identity = issue(authority, "broker", hosts, days=days, now=None if days > 1 else long_ago)
    (tmp_path / "old.pem").write_text(identity.certificate + identity.key)
    (tmp_path / "old-ca.pem").write_text(authority.certificate)
    config = {"ssl.keystore.location": str(tmp_path / "old.pem")}
    with secured_broker(config) as broker:
        options = broker.client_options("alice")
        options["ssl.truststore.location"] = str(tmp_path / "old-ca.pem")
        with (
            moldau.Admin(broker.bootstrap, **options) as admin,
            pytest.raises(TlsHandshakeError, match=words),
        ):
            admin.list_topics()
        if words == "mismatch":  # who asks for it gets any host
            options["ssl.endpoint.identification.algorithm"] = ""
            with moldau.Admin(broker.bootstrap, **options) as admin:
                assert admin.describe_cluster().brokers


# Other people's clients


def confluent_options(broker: SecuredBroker, mechanism: str, password: str) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.authority_file),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent(broker: SecuredBroker, mechanism: str) -> None:
    options = confluent_options(broker, mechanism, "alice-secret")
    topic = f"confluent-{mechanism}"
    producer = confluent_kafka.Producer(options)
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number * 30_000)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {**options, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        found = [message for message in consumer.consume(COUNT, 60) if message.error() is None]
    finally:
        consumer.close()
    assert len(found) == COUNT


def test_confluent_with_a_wrong_password(broker: SecuredBroker) -> None:
    heard: list[int] = []
    options = confluent_options(broker, "SCRAM-SHA-256", "guess")
    options["error_cb"] = lambda error: heard.append(error.code())
    admin = AdminClient(options)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=3)
    eventually(
        lambda: admin.poll(0.1) or confluent_kafka.KafkaError._AUTHENTICATION in heard,
        "the client's own word for it",
    )


def test_confluent_with_a_client_certificate(broker: SecuredBroker) -> None:
    pem = str(broker.issue_certificate("dora"))
    admin = AdminClient(
        {
            "bootstrap.servers": broker.address_of("SSL"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(broker.authority_file),
            "ssl.certificate.location": pem,
            "ssl.key.location": pem,
        }
    )
    assert admin.list_topics(timeout=60).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: SecuredBroker, mechanism: str) -> None:
    options = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=str(broker.authority_file)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
    }

    async def talk() -> None:
        producer = aiokafka.AIOKafkaProducer(**options, sasl_plain_password="alice-secret")
        await producer.start()
        try:
            await producer.send_and_wait(f"aio-{mechanism}", b"x" * 100_000)
        finally:
            await producer.stop()
        wrong = aiokafka.AIOKafkaProducer(**options, sasl_plain_password="guess")
        with pytest.raises(AioConnectionError):
            await wrong.start()
        await wrong.stop()

    asyncio.run(talk())
    with warnings.catch_warnings():  # it leaves the connection of a refused login open
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: SecuredBroker, mechanism: str) -> None:
    options = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(broker.authority_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    producer = kafka.KafkaProducer(**options)
    try:
        producer.send(f"python-{mechanism}", b"x" * 100_000).get(60)
    finally:
        producer.close()


# Tokens


def test_tokens(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    config = {"sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER", **issuer.broker_settings}
    now = int(time.time())
    good, sign = issuer.claims("alice"), issuer.sign
    stranger = rsa.generate_private_key(65537, 2048)
    bad = [
        sign({**good, "aud": "other"}),
        sign({**good, "iss": "https://other.example.com"}),
        sign({**good, "exp": now - 600}),
        sign({**good, "sub": " "}),
        sign({name: value for name, value in good.items() if name != "sub"}),
        sign(good, stranger),
        unsigned(good),
        "nonsense",
    ]
    with secured_broker(config) as broker:
        options = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(broker.authority_file),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path / 'token'}",
        }
        for token in bad:
            (tmp_path / "token").write_text(token)
            with (
                moldau.Admin(broker.bootstrap, **options) as admin,
                pytest.raises(SaslAuthenticationError),
            ):
                admin.list_topics()
        (tmp_path / "token").write_text(sign(good))
        write_and_read(broker.bootstrap, options, "tokens")
        other = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(broker.authority_file),
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (sign(good), time.time() + 500),
            }
        )
        other.produce("tokens", b"x")
        assert other.flush(60) == 0


# Certificates that change, and sessions that end


def test_certificates_are_renewed_without_a_restart(tmp_path: Path) -> None:
    with secured_broker(folder=tmp_path) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        context = ssl.create_default_context(cafile=str(broker.authority_file))
        first = serial_of(context, host, int(port))
        options = broker.client_options("alice")
        with moldau.Producer(broker.bootstrap, **options) as producer:
            producer.send("rolled", value=b"before").result(60)
            fresh = issue(broker.authority, "broker", ("localhost", "127.0.0.1"))
            key_store = broker.folder / "broker.pem"
            key_store.write_text(fresh.certificate + fresh.key)
            eventually(lambda: serial_of(context, host, int(port)) != first, "the new one")
            producer.send("rolled", value=b"after").result(60)  # on its old connection
            key_store.write_text("nonsense")  # and what cannot be read changes nothing
            with moldau.Admin(broker.bootstrap, **options) as admin:
                assert "rolled" in admin.list_topics()


def serial_of(context: ssl.SSLContext, host: str, port: int) -> str:
    import socket

    with (
        socket.create_connection((host, port), 60) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        found = secured.getpeercert() or {}
        return str(found["serialNumber"])


def test_logins_are_renewed_on_the_same_connection() -> None:
    config = {"connections.max.reauth.ms": "500"}
    with secured_broker(config) as broker:
        options = broker.client_options("alice")
        ends = time.monotonic() + 3
        with moldau.Producer(broker.bootstrap, **options) as producer:
            while time.monotonic() < ends:
                producer.send("renewed", value=b"x").result(60)
        other = confluent_kafka.Producer(confluent_options(broker, "SCRAM-SHA-512", "alice-secret"))
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            other.produce("renewed", b"x")
            assert other.flush(60) == 0


def test_rules_for_names_that_cannot_be_read_stop_the_start() -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1"}
    with pytest.raises(StartupError, match=r"ssl\.principal\.mapping\.rules is not of the form"):
        secured_broker(rules).__enter__()


def test_users_that_cannot_be_read_lock_nobody_out(tmp_path: Path) -> None:
    """Who changed them could not take it back otherwise. Those that can are in force at once, and
    stand encrypted in the store."""
    with secured_broker({"password.encoder.secret": "s"}, folder=tmp_path) as broker:
        options = broker.client_options("alice", "PLAIN")
        name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
        resource = ConfigResource(ResourceType.BROKER, "1")
        with moldau.Admin(broker.bootstrap, **options) as admin:
            change = ConfigChange(name=name, value="nonsense")
            error = admin.alter_configs({resource: [change]})[resource]
            assert isinstance(error, InvalidConfigError)
            assert "does not end with a semicolon" in str(error)
            users = options["sasl.jaas.config"].replace(";", ' user_alice="a new word";')
            change = ConfigChange(name=name, value=users)
            assert admin.alter_configs({resource: [change]}) == {resource: None}
        with (
            moldau.Admin(broker.bootstrap, **options) as admin,
            pytest.raises(SaslAuthenticationError),
        ):
            admin.describe_cluster()
        options["sasl.jaas.config"] = options["sasl.jaas.config"].replace(
            "alice-secret", "a new word"
        )
        with moldau.Admin(broker.bootstrap, **options) as admin:
            assert admin.describe_cluster().brokers
            described = admin.describe_configs([resource])[resource]
            assert isinstance(described, tuple)
            assert not [one.name for one in described if "a new word" in (one.value or "")]


def test_passwords_in_the_store_are_encrypted_anew_with_a_new_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start with both secrets, and the former is not needed any more."""
    data = {"log.dirs": str(tmp_path / "data")}
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    with secured_broker({**data, "password.encoder.secret": "former"}, folder=tmp_path) as broker:
        options = broker.client_options("alice", "PLAIN")
        users = options["sasl.jaas.config"].replace(";", ' user_carol="hers";')
        resource = ConfigResource(ResourceType.BROKER, "1")
        with moldau.Admin(broker.bootstrap, **options) as admin:
            change = ConfigChange(name=name, value=users)
            assert admin.alter_configs({resource: [change]}) == {resource: None}
    both = {"password.encoder.secret": "new", "password.encoder.old.secret": "former"}
    with secured_broker({**data, **both}, folder=tmp_path):
        eventually(
            lambda: any("take password.encoder.old.secret out" in one for one in caplog.messages),
            lambda: "nobody said that it was done",
        )
    with secured_broker({**data, "password.encoder.secret": "new"}, folder=tmp_path) as broker:
        options["sasl.jaas.config"] = (
            options["sasl.jaas.config"]
            .replace('"alice"', '"carol"')
            .replace("alice-secret", "hers")
        )
        with moldau.Admin(broker.bootstrap, **options) as admin:
            assert admin.describe_cluster().brokers

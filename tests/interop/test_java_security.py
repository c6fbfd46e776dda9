"""Java's own client and tools on secured listeners: right and wrong credentials and certificates,
what access control refuses, each with the exception that Java's users look for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import moldau
from moldau import model
from moldau.errors import SaslAuthenticationError
from moldau.security.certificates import issue, make_authority, to_pkcs12
from moldau.testing.running_secured_broker import MODULES, SecuredBroker, secured_broker
from support.bearer_tokens import TokenIssuer, unsigned
from support.kafka_jars import JarsUnavailableError, require_class_path

SOURCE = Path(__file__).parent / "java" / "SecuredClient.java"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FRUGAL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SECONDS = 400


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("java")
    try:
        path = require_class_path()
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    subprocess.run(["javac", "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
    return f"{path}:{folder}"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def broker(
    class_path: str, issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(_settings(folder) | issuer.broker_settings, folder=folder) as running:
        with moldau.Admin(running.bootstrap, **running.client_options("admin")) as admin:
            admin.create_topics([moldau.NewTopic(name=name) for name in ("open", "shut", "read")])
            grants = [
                _grant("User:alice", model.AclOperation.ALL, "open"),
                _grant("User:bob", model.AclOperation.ALL, "open"),
                _grant("User:alice", model.AclOperation.READ, "read"),
                _grant("User:alice", model.AclOperation.READ, "open", model.AclResourceType.GROUP),
                _grant("User:bob", model.AclOperation.READ, "open", model.AclResourceType.GROUP),
            ]
            assert set(admin.create_acls(grants).values()) == {None}
        yield running


def _settings(folder: Path) -> dict[str, str]:
    """Beside the usual listener: one for certificates, and two with a certificate that is wrong."""
    authority = make_authority("wrong")
    (folder / "wrong-ca.pem").write_text(authority.certificate)
    long_ago = datetime.now(UTC) - timedelta(days=20)
    here = ("localhost", "127.0.0.1")
    expired = issue(authority, "broker", here, days=1, now=long_ago)
    elsewhere = issue(authority, "broker", ("other.example.com",))
    for name, identity in (("expired", expired), ("elsewhere", elsewhere)):
        (folder / f"{name}.pem").write_text(identity.certificate + identity.key)
    return {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,EXPIRED://127.0.0.1:0,"
        "ELSEWHERE://127.0.0.1:0",
        "listener.security.protocol.map": "EXPIRED:SSL,ELSEWHERE:SSL",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
        "listener.name.expired.ssl.keystore.location": str(folder / "expired.pem"),
        "listener.name.elsewhere.ssl.keystore.location": str(folder / "elsewhere.pem"),
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "a key that all brokers have",
    }


def _grant(
    principal: str,
    operation: model.AclOperation,
    name: str,
    kind: model.AclResourceType = model.AclResourceType.TOPIC,
) -> model.AclBinding:
    return model.AclBinding(
        model.ResourcePattern(kind, name),
        model.AclEntry(principal, model.AclPermission.ALLOW, operation),
    )


class Cases:
    """What one Java process shall do, one after the other, and how it ended."""

    def __init__(self, folder: Path, class_path: str) -> None:
        self._folder = folder
        self._class_path = class_path
        self._files: list[str] = []

    def add(
        self,
        name: str,
        settings: Mapping[str, str],
        bootstrap: str,
        *,
        action: str = "list",
        topic: str = "open",
    ) -> None:
        told = {"bootstrap.servers": bootstrap, "case.name": name, "case.action": action}
        path = self._folder / f"{name}.properties"
        path.write_text(to_properties({**settings, **told, "case.topic": topic}))
        self._files.append(str(path))

    def run(self) -> dict[str, str]:
        tokens = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._urls()}"
        files = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.files=" + self._urls("")
        command = ["java", *FRUGAL, tokens, files, "-cp", self._class_path, "SecuredClient"]
        done = subprocess.run(
            [*command, *self._files], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split(" ", 2) for line in done.stdout.splitlines() if "outcome " in line]
        return {name: outcome for _, name, outcome in rows}

    def _urls(self, scheme: str = "file://") -> str:
        return ",".join(f"{scheme}{path}" for path in sorted(self._folder.glob("*.jwt")))


def to_properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@pytest.fixture
def cases(tmp_path: Path, class_path: str) -> Cases:
    return Cases(tmp_path, class_path)


def test_passwords(broker: SecuredBroker, cases: Cases) -> None:
    for mechanism in MECHANISMS:
        options = broker.client_options("alice", mechanism)
        jaas = options["sasl.jaas.config"]
        wrong = {**options, "sasl.jaas.config": jaas.replace("alice-secret", "guess")}
        nobody = {**options, "sasl.jaas.config": jaas.replace('"alice"', '"nobody"')}
        cases.add(f"{mechanism}-right", options, broker.bootstrap, action="both")
        cases.add(f"{mechanism}-wrong", wrong, broker.bootstrap)
        cases.add(f"{mechanism}-nobody", nobody, broker.bootstrap, action="write")
    outcomes = cases.run()
    for mechanism in MECHANISMS:
        assert outcomes[f"{mechanism}-right"] == "done"
        refused = (
            "SaslAuthenticationException Authentication failed during authentication due to "
            f"invalid credentials with SASL mechanism {mechanism}"
        )
        assert outcomes[f"{mechanism}-wrong"] == refused
        assert outcomes[f"{mechanism}-nobody"] == refused


def test_certificates(broker: SecuredBroker, cases: Cases, tmp_path: Path) -> None:
    trust = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.authority_file),
    }
    wrong_trust = {**trust, "ssl.truststore.location": str(broker.folder / "wrong-ca.pem")}
    pem = {
        **trust,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.issue_certificate("bob")),
    }
    store = tmp_path / "bob.p12"
    store.write_bytes(to_pkcs12(issue(broker.authority, "bob"), broker.authority, "word"))
    stored = {
        **trust,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "word",
        "ssl.key.password": "word",
    }
    old = issue(broker.authority, "bob", days=1, now=datetime.now(UTC) - timedelta(days=20))
    stranger = issue(make_authority("stranger"), "bob")
    for name, identity in (("old", old), ("stranger", stranger)):
        (tmp_path / f"{name}.pem").write_text(identity.certificate + identity.key)
    ssl = broker.address_of("SSL")
    cases.add("pem", pem, ssl, action="both")
    cases.add("pkcs12", stored, ssl, action="both")
    cases.add("tls-1.2", {**pem, "ssl.protocol": "TLSv1.2"}, ssl)
    cases.add("none", trust, ssl)
    for name in ("old", "stranger"):
        cases.add(name, {**pem, "ssl.keystore.location": str(tmp_path / f"{name}.pem")}, ssl)
    cases.add("untrusted-broker", wrong_trust, ssl)
    cases.add("expired-broker", wrong_trust, broker.address_of("EXPIRED"))
    cases.add("elsewhere", wrong_trust, broker.address_of("ELSEWHERE"))
    anywhere = {**wrong_trust, "ssl.endpoint.identification.algorithm": ""}
    cases.add("anywhere", anywhere, broker.address_of("ELSEWHERE"))
    outcomes = cases.run()
    for name in ("pem", "pkcs12", "tls-1.2", "anywhere"):
        assert outcomes[name] == "done", outcomes
    for name in ("none", "old", "stranger", "untrusted-broker", "expired-broker", "elsewhere"):
        assert outcomes[name].startswith("SslAuthenticationException"), (name, outcomes)
    assert "CertificateExpiredException" in outcomes["expired-broker"]
    assert "CertificateException" in outcomes["elsewhere"]


def test_tokens(broker: SecuredBroker, cases: Cases, issuer: TokenIssuer, tmp_path: Path) -> None:
    good = issuer.claims("alice")
    tokens = {
        "good": issuer.sign(good),
        "expired": issuer.sign({**good, "exp": int(str(good["iat"])) - 600}),
        "another-audience": issuer.sign({**good, "aud": "other"}),
        "forged": issuer.sign(good, rsa.generate_private_key(65537, 2048)),
        "unsigned": unsigned(good),
    }
    for name, token in tokens.items():
        path = tmp_path / f"{name}.jwt"
        path.write_text(token)
        options = broker.client_options("alice") | {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULES['OAUTHBEARER']} required;",
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.token.endpoint.url": f"file://{path}",
        }
        action = "both" if name == "good" else "list"
        cases.add(name, options, broker.bootstrap, action=action)
    outcomes = cases.run()
    assert outcomes["good"] == "done"
    for name in ("another-audience", "forged"):
        assert outcomes[name].startswith("SaslAuthenticationException"), (name, outcomes)
    for name in ("expired", "unsigned"):  # Java's client may look at those itself
        assert "Exception" in outcomes[name], (name, outcomes)


def test_what_access_control_refuses(broker: SecuredBroker, cases: Cases) -> None:
    alice = broker.client_options("alice")
    expected = {
        "write": ("read", "TopicAuthorizationException"),
        "read-topic": ("shut", "TopicAuthorizationException"),
        "read-group": ("read", "GroupAuthorizationException"),
        "create": ("new", "TopicAuthorizationException"),
        "transact": ("open", "TransactionalIdAuthorizationException"),
    }
    for name, (topic, _) in expected.items():
        more = {"group.id": "open"} if name == "read-topic" else {}
        action = name.partition("-")[0]
        cases.add(name, {**alice, **more}, broker.bootstrap, action=action, topic=topic)
    outcomes = cases.run()
    for name, (_, error) in expected.items():
        assert outcomes[name].startswith(error), (name, outcomes)


def run_tool(class_path: str, tool: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["java", *FRUGAL, "-cp", class_path, f"org.apache.kafka.tools.{tool}", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_console_tools(broker: SecuredBroker, class_path: str, tmp_path: Path) -> None:
    with moldau.Admin(broker.bootstrap, **broker.client_options("admin")) as admin:
        admin.create_topics([moldau.NewTopic(name="console")])
    settings = tmp_path / "client.properties"
    settings.write_text(to_properties(broker.client_options("admin")))
    where = ("--bootstrap-server", broker.bootstrap, "--topic", "console")
    run_tool(
        class_path, "ConsoleProducer", *where, "--producer.config", str(settings), given="a\nb\n"
    )
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    told = run_tool(
        class_path,
        "consumer.ConsoleConsumer",
        *where,
        *read,
        "--consumer.config",
        str(settings),
    )
    assert told.split()[:2] == ["a", "b"]


def test_delegation_tokens(
    broker: SecuredBroker, cases: Cases, class_path: str, tmp_path: Path
) -> None:
    """kafka-delegation-tokens.sh, and Java's client with what it got."""
    settings = tmp_path / "alice.properties"
    settings.write_text(to_properties(broker.client_options("alice")))

    def tool(*arguments: str, by: Path = settings) -> str:
        where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(by))
        return run_tool(class_path, "DelegationTokenCommand", *where, *arguments)

    made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    row = next(line.split() for line in made.splitlines() if "User:alice" in line)
    token_id, secret = row[0], row[1]
    assert "User:bob" in made
    by_token = broker.client_options("alice") | {
        "sasl.jaas.config": (
            f"{MODULES['SCRAM-SHA-512']} required "
            f'username="{token_id}" password="{secret}" tokenauth="true";'
        )
    }
    wrong = by_token["sasl.jaas.config"].replace(secret, secret[::-1])
    without = by_token["sasl.jaas.config"].replace('tokenauth="true"', "")
    cases.add("right", by_token, broker.bootstrap, action="both")
    cases.add("wrong", {**by_token, "sasl.jaas.config": wrong}, broker.bootstrap)
    cases.add("not-a-user", {**by_token, "sasl.jaas.config": without}, broker.bootstrap)
    outcomes = cases.run()
    assert outcomes["right"] == "done"
    for name in ("wrong", "not-a-user"):
        assert outcomes[name].startswith("SaslAuthenticationException"), outcomes
    with moldau.Admin(broker.bootstrap, **by_token) as admin:  # and ours
        assert "open" in admin.list_topics()

    of_token = tmp_path / "token.properties"
    of_token.write_text(to_properties(by_token))
    with pytest.raises(AssertionError, match="Delegation Token requests are not allowed"):
        tool("--create", "--max-life-time-period", "-1", by=of_token)
    with pytest.raises(AssertionError, match="Delegation Token authorization failed"):
        tool("--create", "--max-life-time-period", "-1", "--owner-principal", "User:admin")

    admin_settings = tmp_path / "admin.properties"
    admin_settings.write_text(to_properties(broker.client_options("admin")))
    of_alice = ("--describe", "--owner-principal", "User:alice")
    assert token_id in tool(*of_alice)
    assert token_id in tool(*of_alice, by=admin_settings)
    tool("--renew", "--renew-time-period", "-1", "--hmac", secret)
    tool("--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in tool(*of_alice)
    with (
        moldau.Admin(broker.bootstrap, **by_token) as admin,
        pytest.raises(SaslAuthenticationError),
    ):
        admin.list_topics()

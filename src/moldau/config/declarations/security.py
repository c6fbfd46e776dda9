"""Security: TLS, SASL, access control, delegation tokens and stored passwords."""

from __future__ import annotations

from typing import Final

from moldau.config.listeners import SECURITY_PROTOCOLS
from moldau.config.option import (
    BOOLEAN,
    CLASS,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Fallback,
    Importance,
    Kind,
    Option,
    OptionSet,
    OptionType,
    Reload,
    Rule,
    any_of,
    at_least,
    between,
    one_of,
    option,
    optional,
)
from moldau.model import Principal

# Certificates, SASL and who may connect without either.
#
# Kafka's names. Each may be given to one listener only, with `listener.name.NAME.` in front, and
# what belongs to a mechanism of SASL with `listener.name.NAME.MECHANISM.` in front of it.


STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Those that are served. GSSAPI (Kerberos) is not."""

_PER_BROKER: Final = Reload.PER_BROKER


class TlsOptions(OptionSet, reload=Reload.PER_BROKER):
    """Certificates and keys, of a broker as of a client."""

    ssl_keystore_type = optional(
        "ssl.keystore.type",
        STRING,
        "The format of the key store: PEM or PKCS12. What the file is counts, whatever is said "
        "here; Java's own format, JKS, is not read: `keytool -importkeystore` makes PKCS12 of it.",
        one_of(*STORE_TYPES),
        ignored=True,
    )
    ssl_keystore_location = optional(
        "ssl.keystore.location",
        STRING,
        "The file with the certificate chain and its private key. It is read again when it "
        "changes; new connections get the new certificate.",
        importance=Importance.HIGH,
    )
    ssl_keystore_password = optional(
        "ssl.keystore.password",
        PASSWORD,
        "The password of a PKCS12 key store.",
        sensitive=True,
        importance=Importance.HIGH,
    )
    ssl_key_password = optional(
        "ssl.key.password",
        PASSWORD,
        "The password of the private key.",
        sensitive=True,
        importance=Importance.HIGH,
    )
    ssl_keystore_key = optional(
        "ssl.keystore.key",
        PASSWORD,
        "The private key itself as PEM, in place of a file.",
        sensitive=True,
        importance=Importance.HIGH,
    )
    ssl_keystore_certificate_chain = optional(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        "The certificate chain itself as PEM, in place of a file.",
        sensitive=True,
        importance=Importance.HIGH,
    )
    ssl_truststore_type = optional(
        "ssl.truststore.type",
        STRING,
        "The format of the trust store: PEM or PKCS12, as with ssl.keystore.type.",
        one_of(*STORE_TYPES),
        ignored=True,
    )
    ssl_truststore_location = optional(
        "ssl.truststore.location",
        STRING,
        "The file with the certificates of those who are trusted. Without one, a client trusts "
        "whom its operating system trusts.",
        importance=Importance.HIGH,
    )
    ssl_truststore_password = optional(
        "ssl.truststore.password",
        PASSWORD,
        "The password of a PKCS12 trust store.",
        sensitive=True,
        importance=Importance.HIGH,
    )
    ssl_truststore_certificates = optional(
        "ssl.truststore.certificates",
        PASSWORD,
        "The trusted certificates themselves as PEM, in place of a file.",
        sensitive=True,
        importance=Importance.HIGH,
    )
    ssl_enabled_protocols = option(
        "ssl.enabled.protocols",
        LIST,
        TLS_VERSIONS,
        "The versions of TLS that are spoken.",
        any_of(*TLS_VERSIONS),
        reload=Reload.READ_ONLY,
    )
    ssl_protocol = optional(
        "ssl.protocol",
        STRING,
        "The newest version of TLS; ssl.enabled.protocols says which ones are spoken.",
        one_of(*TLS_VERSIONS, "TLS"),
        ignored=True,
        reload=Reload.READ_ONLY,
    )
    ssl_cipher_suites = option(
        "ssl.cipher.suites",
        LIST,
        (),
        "The ciphers of TLS 1.2, by Java's or OpenSSL's names; without them, OpenSSL's choice.",
        importance=Importance.LOW,
        reload=Reload.READ_ONLY,
    )
    ssl_endpoint_identification_algorithm = option(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "How a client makes sure that a broker's certificate is for its host; an empty text lets "
        "a broker be anybody whose certificate is trusted.",
        one_of("https", "HTTPS", ""),
        importance=Importance.LOW,
        reload=Reload.READ_ONLY,
    )


class OauthClientOptions(OptionSet):
    """How somebody who connects gets a token."""

    sasl_oauthbearer_token_endpoint_url = optional(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        "Where a client gets its token: the URL of an issuer that takes client credentials, or "
        "file:///path of a file with a token, which is read again for each connection.",
    )
    sasl_oauthbearer_scope_claim_name = optional(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "The claim of a token that has its scope.",
        importance=Importance.LOW,
        ignored=True,
    )
    sasl_oauthbearer_sub_claim_name = option(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        "The claim of a token that says who it is for.",
        importance=Importance.LOW,
    )


class SecurityOptions(TlsOptions, OauthClientOptions):
    """What a listener asks of those who connect."""

    ssl_client_auth = option(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients need a certificate: required, requested (one that has none is "
        "ANONYMOUS), or none.",
        one_of("required", "requested", "none"),
        reload=_PER_BROKER,
    )
    ssl_principal_mapping_rules = option(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes the user's: "
        "RULE:pattern/replacement/[LU],…,DEFAULT. Without a rule it is the whole distinguished "
        "name.",
        importance=Importance.LOW,
    )
    sasl_enabled_mechanisms = option(
        "sasl.enabled.mechanisms",
        LIST,
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The mechanisms of SASL listeners. Kafka's default is GSSAPI, which Moldau does not have.",
        any_of(*MECHANISMS),
        reload=_PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol = option(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "SCRAM-SHA-512",
        "The mechanism that brokers use among themselves. Kafka's default is GSSAPI.",
        one_of(*MECHANISMS),
        reload=_PER_BROKER,
    )
    sasl_jaas_config = optional(
        "sasl.jaas.config",
        PASSWORD,
        "Users and passwords of a mechanism in Kafka's format: "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" '
        'password="…" user_alice="…"; where username is who this broker is for other brokers.',
        reload=_PER_BROKER,
        sensitive=True,
    )
    sasl_server_max_receive_size = option(
        "sasl.server.max.receive.size",
        INT,
        512 << 10,
        "The largest request that is read before a client has said who it is.",
        at_least(1),
    )
    connections_max_reauth_ms = option(
        "connections.max.reauth.ms",
        LONG,
        0,
        "How long a client may work before it has to prove again who it is, on the same "
        "connection (KIP-368); 0 for ever. A login with a token ends with the token in any case.",
        at_least(0),
    )
    connection_failed_authentication_delay_ms = option(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long an answer that refuses a client waits before it is sent and the connection "
        "closed, to slow down guessing.",
        at_least(0),
        importance=Importance.LOW,
    )
    sasl_oauthbearer_jwks_endpoint_url = optional(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        "The public keys of the issuer of tokens: an https URL, or file:///path of a JWKS file. "
        "OAUTHBEARER needs it: tokens without a signature are never taken.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        HOUR_MS,
        "How often the keys are fetched again; also when a token names a key that is not known.",
        at_least(1),
        importance=Importance.LOW,
    )
    sasl_oauthbearer_expected_audience = option(
        "sasl.oauthbearer.expected.audience",
        LIST,
        (),
        "Tokens must be for one of these audiences.",
        importance=Importance.LOW,
    )
    sasl_oauthbearer_expected_issuer = optional(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        "Tokens must be from this issuer.",
        importance=Importance.LOW,
    )
    sasl_oauthbearer_clock_skew_seconds = option(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        30,
        "How far the clocks of the issuer and the broker may differ.",
        at_least(0),
        importance=Importance.LOW,
    )
    insecure_listeners_enable = option(
        "insecure.listeners.enable",
        BOOLEAN,
        False,
        "Whether a listener without TLS and SASL may be reachable from other machines. Moldau's "
        "own; `moldau start --insecure` sets it.",
        importance=Importance.HIGH,
    )


class ClientSecurityOptions(TlsOptions, OauthClientOptions):
    """How a client connects, and as whom."""

    security_protocol = option(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "How to connect: PLAINTEXT, SSL (encrypted), SASL_SSL (encrypted, and as a user), or "
        "SASL_PLAINTEXT.",
        one_of(*SECURITY_PROTOCOLS),
        importance=Importance.HIGH,
    )
    sasl_mechanism = option(
        "sasl.mechanism",
        STRING,
        "SCRAM-SHA-512",
        "How a client says who it is. Kafka's default is GSSAPI, which Moldau does not have.",
        one_of(*MECHANISMS),
        importance=Importance.HIGH,
    )
    sasl_jaas_config = optional(
        "sasl.jaas.config",
        PASSWORD,
        "Who the client is, as Java's clients are told: "
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" '
        'password="…";',
        sensitive=True,
    )
    sasl_username = optional(
        "sasl.username", STRING, "Who the client is, as librdkafka is told: the user's name."
    )
    sasl_password = optional(
        "sasl.password", PASSWORD, "The user's password, beside sasl.username.", sensitive=True
    )
    ssl_ca_location = optional(
        "ssl.ca.location",
        STRING,
        "librdkafka's name for ssl.truststore.location: a PEM file.",
    )
    ssl_certificate_location = optional(
        "ssl.certificate.location",
        STRING,
        "The client's certificate chain as PEM, where the key is in a file of its own "
        "(librdkafka's name).",
    )
    ssl_key_location = optional(
        "ssl.key.location", STRING, "The key to ssl.certificate.location, as PEM."
    )


AUTHORIZER_CLASSES = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "moldau.security.authorizer.Authorizer",
)
"""Kafka's two, whose part Moldau's own takes."""


def _find_class_fault(name: str) -> str | None:
    if name in ("", *AUTHORIZER_CLASSES):
        return None
    return (
        "is a class of Java that Moldau cannot load, and without it everybody could do everything: "
        f"use {AUTHORIZER_CLASSES[1]}, whose lists Moldau keeps by itself"
    )


def parse_super_users(text: str) -> tuple[Principal, ...]:
    """Read `User:alice;User:bob`; semicolons, since names of certificates contain commas."""
    named = (part.strip() for part in text.split(";"))
    try:
        return tuple(Principal.parse(name) for name in named if name)
    except ValueError as fault:
        raise ValueError(f"has an entry that is no principal: {fault}") from None


class AuthorizationOptions(OptionSet):
    """Access control lists and the audit log."""

    authorizer_class_name = option(
        "authorizer.class.name",
        CLASS,
        "",
        "Whether access control lists are in force. Both of Kafka's authorizers "
        "(org.apache.kafka.metadata.authorizer.StandardAuthorizer, "
        "kafka.security.authorizer.AclAuthorizer) mean Moldau's own. Without it everybody who can "
        "connect may do everything.",
        Rule("empty, or one of Kafka's authorizers", _find_class_fault),
        importance=Importance.LOW,
    )
    super_users = option(
        "super.users",
        Kind(OptionType.STRING, parse_super_users),
        (),
        "Who may do everything, whatever the lists say: User:admin;User:broker. The principal "
        "under which brokers talk to each other belongs here.",
        importance=Importance.HIGH,
    )
    allow_everyone_if_no_acl_found = option(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether everybody may use a resource that no access control list is about.",
        importance=Importance.HIGH,
    )
    audit_log_path = optional(
        "audit.log.path",
        STRING,
        "A file to which the audit log is appended as JSON lines: who was refused what, and who "
        "changed topics, settings, access control lists and the like. Without it the audit log is "
        "a part of the broker's log (the logger moldau.audit, level info). An option of Moldau's "
        "own.",
        importance=Importance.LOW,
    )


_DAY_MS: Final = 24 * HOUR_MS
_CENTURY_MS: Final = 100 * 365 * _DAY_MS
"""Longer lives end at times that clients cannot read; in Kafka their sum overflows."""


class DelegationTokenOptions(OptionSet):
    """Tokens with which others log in as a user, for a while."""

    delegation_token_secret_key: Option[str | None] = Option(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The key from which the secrets of delegation tokens follow; the same on every broker. "
        "Without it there are no tokens.",
        falls_back_to=(Fallback("delegation.token.master.key"),),
        sensitive=True,
    )
    delegation_token_master_key: Option[str | None] = Option(
        "delegation.token.master.key",
        PASSWORD,
        None,
        "The former name of delegation.token.secret.key.",
        sensitive=True,
    )
    delegation_token_max_lifetime_ms = option(
        "delegation.token.max.lifetime.ms",
        LONG,
        7 * _DAY_MS,
        "The longest life of a token, however often it is renewed.",
        between(1, _CENTURY_MS),
    )
    delegation_token_expiry_time_ms = option(
        "delegation.token.expiry.time.ms",
        LONG,
        _DAY_MS,
        "How long a token is good before it has to be renewed.",
        between(1, _CENTURY_MS),
    )
    delegation_token_expiry_check_interval_ms = option(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        HOUR_MS,
        "How often the controller removes tokens that have expired.",
        at_least(1),
        importance=Importance.LOW,
    )


MOST_ITERATIONS: Final = 1_000_000
"""More would take seconds; what has more in the store was not written by a broker."""

_KEY_BITS: Rule[int] = Rule(
    "128, 192 or 256",
    lambda bits: None if bits in (128, 192, 256) else "is not the length of a key of AES",
)


class PasswordEncoderOptions(OptionSet):
    """The encryption of dynamic passwords."""

    password_encoder_secret = optional(
        "password.encoder.secret",
        PASSWORD,
        "Passwords that are set while the broker runs (sasl.jaas.config, ssl.key.password and the "
        "like) are encrypted with it in the coordination store, in Kafka's format. Without it they "
        "stand there as they are. Needs moldau[security]; all brokers of a cluster have the same.",
        sensitive=True,
    )
    password_encoder_old_secret = optional(
        "password.encoder.old.secret",
        PASSWORD,
        "The former password.encoder.secret: what was encrypted with it is encrypted anew when the "
        "broker starts.",
        sensitive=True,
    )
    password_encoder_keyfactory_algorithm = option(
        "password.encoder.keyfactory.algorithm",
        STRING,
        "PBKDF2WithHmacSHA512",
        "How the key is made of the secret.",
        one_of("PBKDF2WithHmacSHA512", "PBKDF2WithHmacSHA256", "PBKDF2WithHmacSHA1"),
        importance=Importance.LOW,
    )
    password_encoder_cipher_algorithm = optional(
        "password.encoder.cipher.algorithm",
        STRING,
        "How passwords are encrypted: always with AES/CBC/PKCS5Padding.",
        one_of("AES/CBC/PKCS5Padding"),
        importance=Importance.LOW,
        ignored=True,
    )
    password_encoder_key_length = option(
        "password.encoder.key.length",
        INT,
        128,
        "How many bits the key has: 128, 192 or 256.",
        _KEY_BITS,
        importance=Importance.LOW,
    )
    password_encoder_iterations = option(
        "password.encoder.iterations",
        INT,
        4096,
        "How often the secret is hashed for the key.",
        between(1024, MOST_ITERATIONS),
        importance=Importance.LOW,
    )

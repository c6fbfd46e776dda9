"""Makes certificates: an authority of one's own, and what it signs. Needs `moldau[security]`.

Elliptic keys (P-256): signing one handshake costs a broker a tenth of what RSA does. Private keys
are PKCS#8 PEM without a password, for files that only their owner can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from moldau.errors import MissingExtraError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
        pkcs12,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    _IS_INSTALLED = False
else:
    _IS_INSTALLED = True

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
_CLOCK_SKEW: Final = timedelta(minutes=5)


class IssuedCertificate(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "IssuedCertificate()"


def require_cryptography() -> None:
    """To be called before anything is made here."""
    if not _IS_INSTALLED:
        raise MissingExtraError(
            "certificates are made with the package cryptography: pip install 'moldau[security]'"
        )


def make_authority(
    name: str, *, days: int = AUTHORITY_DAYS, now: datetime | None = None
) -> IssuedCertificate:
    """An authority that signs itself, and may sign nothing but ends of the chain."""
    key = _new_key()
    subject = _name(name)
    builder = _builder(subject, subject, key, days, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    return _sign(builder, key, key)


def issue(
    authority: IssuedCertificate,
    name: str,
    hosts: Sequence[str] = (),
    *,
    days: int = CERTIFICATE_DAYS,
    now: datetime | None = None,
) -> IssuedCertificate:
    """A certificate for a broker at these hosts, or for a client without any.

    A broker is a client of other brokers, so its certificate is good for both.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_key = load_pem_private_key(authority.key.encode(), None)
    key = _new_key()
    builder = _builder(_name(name), issuer.subject, key, days, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_key_usage(digital_signature=True), critical=True)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),  # type: ignore[arg-type]
        critical=False,
    )
    return _sign(builder, issuer_key, key)  # type: ignore[arg-type]


def read_names(certificate: str) -> tuple[str, list[str]]:
    """The name of the first certificate in a PEM text, and the hosts it is for."""
    found = x509.load_pem_x509_certificate(certificate.encode())
    (name,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    try:
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return str(name.value), []
    return str(name.value), [str(one.value) for one in extension.value]


def to_pkcs12(identity: IssuedCertificate, authority: IssuedCertificate, password: str) -> bytes:
    """A key store as Java makes it."""
    return pkcs12.serialize_key_and_certificates(
        b"moldau",
        load_pem_private_key(identity.key.encode(), None),  # type: ignore[arg-type]
        x509.load_pem_x509_certificate(identity.certificate.encode()),
        [x509.load_pem_x509_certificate(authority.certificate.encode())],
        BestAvailableEncryption(password.encode()),
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(**uses: bool) -> x509.KeyUsage:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: uses.get(name, False) for name in names})


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    now: datetime | None,
) -> x509.CertificateBuilder:
    start = (now or datetime.now(UTC)) - _CLOCK_SKEW
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sign(
    builder: x509.CertificateBuilder,
    issuer_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> IssuedCertificate:
    certificate = builder.sign(issuer_key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return IssuedCertificate(certificate.public_bytes(Encoding.PEM).decode(), private.decode())

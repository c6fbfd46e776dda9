"""With which login a command asks a schema registry."""

from __future__ import annotations

from moldau.cli.schema_options import settings_at

FILE = {
    "schema.registry.url": "https://ours",
    "basic.auth.user.info": "me:secret",
    "schema.registry.bearer.auth.token": "secret",
    "sasl.jaas.config": "secret",
    "schema.registry.ssl.truststore.location": "ca.pem",
}


def test_a_login_goes_to_no_other_address_than_the_one_that_it_stands_beside() -> None:
    assert settings_at(None, FILE) == FILE
    assert settings_at("https://ours", FILE) == FILE
    other = settings_at("https://other", FILE)
    assert other["schema.registry.url"] == "https://other"
    assert "secret" not in str(other)

from __future__ import annotations

import base64

import pytest

from moldau.errors import ConfigurationError
from moldau.schemas import SchemaRegistry
from moldau.schemas.settings import read_registry_settings

URL = {"schema.registry.url": "http://one:8081, http://two:8081"}


def login(properties: dict[str, str]) -> str | None:
    header = read_registry_settings({**URL, **properties}).headers.get("Authorization")
    return None if header is None else base64.b64decode(header.split()[1]).decode()


@pytest.mark.parametrize("prefix", ["", "schema.registry."])
def test_the_login_is_read_by_both_of_its_names(prefix: str) -> None:
    assert login({f"{prefix}basic.auth.user.info": "me:secret:s"}) == "me:secret:s"


def test_the_login_of_the_brokers_can_be_inherited() -> None:
    inherit = {"basic.auth.credentials.source": "SASL_INHERIT"}
    jaas = 'Module required username="me" password="it";'

    assert login({**inherit, "sasl.jaas.config": jaas}) == "me:it"
    assert login({**inherit, "sasl.username": "me", "sasl.password": "it"}) == "me:it"
    with pytest.raises(ConfigurationError, match="there is no user"):
        login(inherit)


def test_the_login_may_stand_in_the_url_and_is_never_shown() -> None:
    properties = {"schema.registry.url": "http://me:se%40cret@host:8081"}

    assert login(properties) == "me:se@cret"
    registry = SchemaRegistry.from_settings(properties)
    assert registry.address == "http://host:8081"
    assert "cret" not in repr(registry) + repr(read_registry_settings(properties))


def test_a_token_goes_with_its_cluster() -> None:
    found = read_registry_settings(
        {**URL, "bearer.auth.token": "abc", "bearer.auth.logical.cluster": "lsrc-1"}
    )

    assert found.headers == {"Authorization": "Bearer abc", "target-sr-cluster": "lsrc-1"}
    assert found.urls == ("http://one:8081", "http://two:8081")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"schema.registry.url": ""}, "there is no schema.registry.url"),
        ({**URL, "basic.auth.user.info": "me"}, "user:password"),
        ({**URL, "basic.auth.credentials.source": "USER_INFO"}, "no basic.auth.user.info"),
        ({**URL, "bearer.auth.credentials.source": "OAUTHBEARER"}, "not served"),
        ({**URL, "schema.registry.request.timeout.ms": "soon"}, "no number"),
        (
            {**URL, "schema.registry.ssl.truststore.location": "/no/such/file"},
            "/no/such/file",
        ),
    ],
)
def test_what_is_wrong_is_told(properties: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_registry_settings(properties)


@pytest.mark.parametrize("url", ["host:8081", "ftp://me:secret@host", "http://", "http://h:port"])
def test_what_is_no_address_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"schema\.registry\.url") as caught:
        SchemaRegistry(url)
    assert "secret" not in str(caught.value)


def test_secrets_are_in_no_refusal() -> None:
    for url in ("http://me:sec/ret@host:8081", "http://me:secret@[::1:8081", "htt://me:secret@h"):
        with pytest.raises(ConfigurationError) as caught:
            SchemaRegistry(url)
        assert "sec" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"bearer\.auth\.token has characters") as caught:
        SchemaRegistry("http://host", bearer_token="sec\nret")
    assert "sec" not in str(caught.value)


def test_a_token_may_be_the_line_of_a_file() -> None:
    headers = read_registry_settings({**URL, "bearer.auth.token": "token\n"}).headers

    assert headers["Authorization"] == "Bearer token"

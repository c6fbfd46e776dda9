"""`moldau users list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from kio.schema.describe_user_scram_credentials.v0 import (
        DescribeUserScramCredentialsResponse,
    )

    from moldau.client.cluster_client import ClusterClient

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the users that the cluster keeps, and how they may log in."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_client

    found = with_client(bootstrap, _ask)
    rows = [
        (row.user, _MECHANISMS.get(one.mechanism, str(one.mechanism)), str(one.iterations))
        for row in found.results
        for one in row.credential_infos
    ]
    if as_json:
        names = ("user", "mechanism", "iterations")
        print_document([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table((Column("user"), Column("mechanism"), Column("iterations", True)), rows)
    else:
        note("there are no users; make one with `moldau users set NAME`")


async def _ask(client: ClusterClient) -> DescribeUserScramCredentialsResponse:
    from moldau.client.broker_errors import error_for
    from moldau.errors import ErrorCode
    from moldau.wire.apis import DESCRIBE_USER_SCRAM_CREDENTIALS

    answer = cast(
        "DescribeUserScramCredentialsResponse",
        await client.call_controller(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}),
    )
    if answer.error_code is not ErrorCode.none:
        raise error_for(answer.error_code, answer.error_message, "users")
    return answer

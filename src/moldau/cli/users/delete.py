"""`moldau users delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0 import AlterUserScramCredentialsResponse
    from kio.schema.describe_user_scram_credentials.v0 import (
        DescribeUserScramCredentialsResponse,
    )

    from moldau.client.cluster_client import ClusterClient


def delete_user(
    name: Annotated[str, typer.Argument(metavar="USER")], bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Take a user's password away. Who is connected stays so until the connection ends."""
    from moldau.cli.session import with_client

    with_client(bootstrap, lambda client: _delete(client, name))
    typer.echo(f"deleted the password of {name}")


async def _delete(client: ClusterClient, name: str) -> None:
    from moldau.client.broker_errors import error_for
    from moldau.errors import ErrorCode
    from moldau.wire.apis import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS

    found = cast(
        "DescribeUserScramCredentialsResponse",
        await client.call_controller(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": name}]}),
    )
    for described in found.results:
        if described.error_code is not ErrorCode.none:
            raise error_for(described.error_code, described.error_message, f"user {name}")
    deletions = [
        {"name": name, "mechanism": one.mechanism}
        for described in found.results
        for one in described.credential_infos
    ]
    answer = cast(
        "AlterUserScramCredentialsResponse",
        await client.call_controller(
            ALTER_USER_SCRAM_CREDENTIALS, {"deletions": deletions, "upsertions": []}
        ),
    )
    for row in answer.results:
        if row.error_code is not ErrorCode.none:
            raise error_for(row.error_code, row.error_message, f"user {row.user}")

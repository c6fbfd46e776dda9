"""DescribeUserScramCredentials, version 0.

Which users have credentials, of which mechanisms and with how many iterations; never the
credentials. Without names, all users are told. A user without a credential is RESOURCE_NOT_FOUND,
and one who is named twice DUPLICATE_RESOURCE, as in Kafka.
"""

from __future__ import annotations

from collections import Counter

from kio.schema.describe_user_scram_credentials.v0 import DescribeUserScramCredentialsRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authentication import number_of
from moldau.broker.authorization import authorize
from moldau.cluster.credentials import UserCredentials
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import DESCRIBE_USER_SCRAM_CREDENTIALS

API = serves(DESCRIBE_USER_SCRAM_CREDENTIALS, needs=AclOperation.DESCRIBE)


async def handle(request: DescribeUserScramCredentialsRequest, context: RequestContext) -> Values:
    credentials = context.services.credentials
    try:
        authorize(context, API)
    except KafkaError as error:
        return {**error_values(error), "results": []}
    if request.users:
        named = Counter(user.name for user in request.users)
        results = [await _describe(name, count, credentials) for name, count in named.items()]
    else:
        found = [await _describe(name, 1, credentials) for name in await credentials.list_users()]
        results = [row for row in found if row["credential_infos"]]
    return {**error_values(None), "results": results}


async def _describe(name: str, count: int, credentials: UserCredentials) -> Values:
    row: Values = {"user": name, **error_values(None), "credential_infos": []}
    if count > 1:
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        return {**row, "error_code": ErrorCode.duplicate_resource, "error_message": message}
    found = await credentials.read_credentials(name)
    if not found:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return {**row, "error_code": ErrorCode.resource_not_found, "error_message": message}
    row["credential_infos"] = [
        {"mechanism": number_of(mechanism), "iterations": credential.iterations}
        for mechanism, credential in found.items()
    ]
    return row

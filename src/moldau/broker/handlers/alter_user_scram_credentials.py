"""AlterUserScramCredentials, version 0.

Sets and takes away credentials of users. The client has salted the password already, so it never
comes here. All changes of a user are done, or none; one credential changed twice in a request is
DUPLICATE_RESOURCE, as in Kafka. Unlike in Kafka, a success has a message where the change has no
effect yet, as the user stands in the broker's own settings, too.
"""

from __future__ import annotations

from kio.schema.alter_user_scram_credentials.v0 import AlterUserScramCredentialsRequest
from kio.schema.alter_user_scram_credentials.v0.request import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authentication import MECHANISMS_BY_NUMBER
from moldau.broker.authorization import audit_change, authorize
from moldau.cluster.credentials import UserCredentials
from moldau.errors import (
    DuplicateResourceError,
    ErrorCode,
    KafkaError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from moldau.model import AclOperation
from moldau.security.rules.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramCredential,
    make_credential,
)
from moldau.security.sasl_server import listeners_that_know
from moldau.wire.apis import ALTER_USER_SCRAM_CREDENTIALS

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion

API = serves(ALTER_USER_SCRAM_CREDENTIALS, needs=AclOperation.ALTER, changes_cluster=True)


async def handle(request: AlterUserScramCredentialsRequest, context: RequestContext) -> Values:
    by_user: dict[str, list[Alteration]] = {}
    for deletion in request.deletions:
        by_user.setdefault(deletion.name, []).append(deletion)
    for upsertion in request.upsertions:
        by_user.setdefault(upsertion.name, []).append(upsertion)
    results = [await _alter(name, rows, context) for name, rows in by_user.items()]
    return {"results": results}


async def _alter(name: str, alterations: list[Alteration], context: RequestContext) -> Values:
    error: KafkaError | None = None
    note: str | None = None
    try:
        authorize(context, API)
        await _change(name, alterations, context.services.credentials)
        note = _find_note(name, alterations, context)
    except KafkaError as refused:
        error = refused
    audit_change(context, f"User:{name}", error)
    return {
        "user": name,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": note if error is None else str(error),
    }


def _find_note(name: str, alterations: list[Alteration], context: RequestContext) -> str | None:
    listeners = context.services.options.listener_options
    for alteration in alterations:
        mechanism = MECHANISMS_BY_NUMBER[alteration.mechanism]
        for listener in listeners_that_know(name, mechanism, listeners):
            return (
                f"{name} stands in sasl.jaas.config of the listener {listener}, which counts "
                "before the store: take him out of it for the change to have an effect"
            )
    return None


async def _change(name: str, alterations: list[Alteration], credentials: UserCredentials) -> None:
    if not name:
        raise UnacceptableCredentialError("Username must not be empty")
    change: dict[str, ScramCredential | None] = {}
    for alteration in alterations:
        mechanism = MECHANISMS_BY_NUMBER.get(alteration.mechanism)
        if mechanism is None:
            raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
        if mechanism in change:
            raise DuplicateResourceError(
                "A user credential cannot be altered twice in the same request"
            )
        change[mechanism] = _make(mechanism, alteration)
    found = await credentials.read_credentials(name)
    if any(one is None and mechanism not in found for mechanism, one in change.items()):
        raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
    await credentials.change(name, change)


def _make(mechanism: str, alteration: Alteration) -> ScramCredential | None:
    salt = getattr(alteration, "salt", None)
    if salt is None:
        return None
    iterations: int = alteration.iterations  # type: ignore[union-attr]
    salted_password: bytes = alteration.salted_password  # type: ignore[union-attr]
    if iterations < LEAST_ITERATIONS:
        raise UnacceptableCredentialError("Too few iterations")
    if iterations > MOST_ITERATIONS:
        raise UnacceptableCredentialError("Too many iterations")
    if not salt or not salted_password:
        raise UnacceptableCredentialError("Salt and salted password must not be empty")
    return make_credential(mechanism, salted_password, salt, iterations)

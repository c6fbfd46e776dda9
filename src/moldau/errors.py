"""Everything Moldau raises on purpose.

    MoldauError
    ├── InvariantViolation          a bug: the values are in the message
    ├── ConfigurationError          a wrong option; says which line
    │   └── UsageError              a word of a command line that means nothing
    ├── StartupError                the broker cannot start; says what to do
    ├── ForeignStoreError           the coordination store is another cluster's, or empty
    ├── DamagedFileError            a checkpoint, snapshot or properties file is damaged
    ├── ClientError                 a request did not come through
    │   ├── BrokerUnreachableError, ConnectionLostError, NoAnswerError, TlsHandshakeError
    │   └── UnsupportedByBrokerError
    ├── RegistryError               a schema registry said no, or nothing
    │   └── RegistryUnreachableError, RegistryAuthorizationError, SchemaNotFoundError, …
    ├── SchemaDecodingError, SchemaEncodingError    bytes or values that do not fit a schema
    └── KafkaError                  has an ErrorCode; rooms raise facts, handlers turn them to codes
        ├── UnknownTopicError, TopicExistsError, InvalidTopicError, …
        ├── NotLeaderError, FencedLeaderEpochError, UnknownLeaderEpochError, …
        ├── OffsetOutOfRangeError
        ├── SaslAuthenticationError, IllegalSaslStateError, UnsupportedSaslMechanismError
        ├── DelegationTokenNotFoundError, DelegationTokenExpiredError, …
        ├── CorruptBatchError, InvalidRecordError, BatchTooLargeError, …
        ├── OutOfOrderSequenceError, InvalidProducerEpochError, …
        └── StorageError            the log directory is offline

The classes carry data only where somebody reads it. `error_message` in an answer is `str(error)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

from kio.schema.errors import ErrorCode as ErrorCode  # exported: the codes have one home

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.model import TopicPartition


class MoldauError(Exception):
    """The root of the tree."""


class InvariantViolation(MoldauError):
    """Something that cannot happen has happened."""


class ConfigurationError(MoldauError):
    """An option has a wrong value; the message names the file and line, or the flag."""


class UsageError(ConfigurationError):
    """A word cannot be read, such as an address that is none: nothing was tried. Commands end with
    exit code 2."""


class StartupError(MoldauError):
    """The broker cannot start; the message says what to do."""


class ForeignStoreError(MoldauError):
    """A new session leads to a store that is not this cluster's; the message says what to do."""


class BrokerFailedError(MoldauError):
    """A duty without which a broker must not go on has failed; it was stopped."""


class DamagedFileError(MoldauError):
    """A file beside the log is not readable; whoever asked decides what can be done without it."""


RecordErrors: TypeAlias = tuple[tuple[int, str], ...]
"""The records for which a batch is refused, as far as they are known: index in it, and why."""


class KafkaError(MoldauError):
    """A fact that has a code in Kafka's protocol."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error
    record_errors: RecordErrors = ()


class UnknownTopicError(KafkaError):
    """The topic or partition does not exist here."""

    code = ErrorCode.unknown_topic_or_partition


class UnknownTopicIdError(KafkaError):
    """No topic has this id."""

    code = ErrorCode.unknown_topic_id


class InconsistentTopicIdError(KafkaError):
    """The id on disk or in the request is another topic's."""

    code = ErrorCode.inconsistent_topic_id


class TopicExistsError(KafkaError):
    """A topic of this name exists."""

    code = ErrorCode.topic_already_exists


class InvalidTopicError(KafkaError):
    """The topic name is not legal."""

    code = ErrorCode.invalid_topic_exception


class InvalidPartitionsError(KafkaError):
    """The number of partitions is not possible."""

    code = ErrorCode.invalid_partitions


class InvalidReplicationFactorError(KafkaError):
    """More replicas than brokers, or fewer than one."""

    code = ErrorCode.invalid_replication_factor


class InvalidReplicaAssignmentError(KafkaError):
    """The given assignment does not hold together."""

    code = ErrorCode.invalid_replica_assignment


class InvalidConfigError(KafkaError):
    """A config name or value is wrong."""

    code = ErrorCode.invalid_config


class InvalidRequestError(KafkaError):
    """The request contradicts itself."""

    code = ErrorCode.invalid_request


class BrokerIdNotRegisteredError(KafkaError):
    """The cluster does not expect a broker of this id."""

    code = ErrorCode.broker_id_not_registered


class PolicyViolationError(KafkaError):
    """A policy of the broker refuses this."""

    code = ErrorCode.policy_violation


class TopicDeletionDisabledError(KafkaError):
    """`delete.topic.enable` is false."""

    code = ErrorCode.topic_deletion_disabled


class NotControllerError(KafkaError):
    """Another broker is the controller."""

    code = ErrorCode.not_controller


class ElectionNotNeededError(KafkaError):
    """The partition has the leader that an election would give it."""

    code = ErrorCode.election_not_needed


class PreferredLeaderNotAvailableError(KafkaError):
    """The preferred replica is not alive or not in sync."""

    code = ErrorCode.preferred_leader_not_available


class EligibleLeadersNotAvailableError(KafkaError):
    """No replica of the partition is alive."""

    code = ErrorCode.eligible_leaders_not_available


class ReassignmentInProgressError(KafkaError):
    """The partition is being moved."""

    code = ErrorCode.reassignment_in_progress


class NoReassignmentInProgressError(KafkaError):
    """There is no reassignment to cancel."""

    code = ErrorCode.no_reassignment_in_progress


class NotLeaderError(KafkaError):
    """This broker does not lead the partition."""

    code = ErrorCode.not_leader_or_follower


class LeaderNotAvailableError(KafkaError):
    """The partition has no leader at the moment."""

    code = ErrorCode.leader_not_available


class ReplicaNotAvailableError(KafkaError):
    """The replica is not here."""

    code = ErrorCode.replica_not_available


class FencedLeaderEpochError(KafkaError):
    """The client's leader epoch is older than ours."""

    code = ErrorCode.fenced_leader_epoch


class UnknownLeaderEpochError(KafkaError):
    """The client's leader epoch is newer than ours."""

    code = ErrorCode.unknown_leader_epoch


class OffsetOutOfRangeError(KafkaError):
    """The offset is before the log's start or past its end."""

    code = ErrorCode.offset_out_of_range


class OffsetNotAvailableError(KafkaError):
    """The leader is new and does not know its high watermark yet."""

    code = ErrorCode.offset_not_available


class CorruptBatchError(KafkaError):
    """A batch fails its CRC or is cut short."""

    code = ErrorCode.corrupt_message


class InvalidRecordError(KafkaError):
    """A batch is whole but its inside is nonsense."""

    code = ErrorCode.invalid_record

    def __init__(self, message: str = "", record_errors: RecordErrors = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class BatchTooLargeError(KafkaError):
    """A batch exceeds `max.message.bytes`."""

    code = ErrorCode.message_too_large


class RecordListTooLargeError(KafkaError):
    """A batch does not fit into one segment."""

    code = ErrorCode.record_list_too_large


class InvalidTimestampError(KafkaError):
    """A timestamp is outside the topic's limits."""

    code = ErrorCode.invalid_timestamp

    def __init__(self, message: str = "", record_errors: RecordErrors = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnsupportedCompressionError(KafkaError):
    """This version may not carry this codec."""

    code = ErrorCode.unsupported_compression_type


class UnsupportedForMessageFormatError(KafkaError):
    """The batch format is older than version 2."""

    code = ErrorCode.unsupported_for_message_format


class InvalidRequiredAcksError(KafkaError):
    """acks is not -1, 0 or 1."""

    code = ErrorCode.invalid_required_acks


class NotEnoughReplicasError(KafkaError):
    """The in-sync set is smaller than `min.insync.replicas`."""

    code = ErrorCode.not_enough_replicas


class NotEnoughReplicasAfterAppendError(KafkaError):
    """The in-sync set shrank after the append."""

    code = ErrorCode.not_enough_replicas_after_append


class RequestTimedOutError(KafkaError):
    """The replicas did not follow in time."""

    code = ErrorCode.request_timed_out


class OutOfOrderSequenceError(KafkaError):
    """The producer's sequence has a gap."""

    code = ErrorCode.out_of_order_sequence_number


class DuplicateSequenceError(KafkaError):
    """A batch older than the remembered ones came again."""

    code = ErrorCode.duplicate_sequence_number


class InvalidProducerEpochError(KafkaError):
    """The producer's epoch is older than the log's."""

    code = ErrorCode.invalid_producer_epoch


class UnknownProducerIdError(KafkaError):
    """The log remembers nothing of this producer."""

    code = ErrorCode.unknown_producer_id


class InvalidTxnStateError(KafkaError):
    """The transaction is not in a state that allows this."""

    code = ErrorCode.invalid_txn_state


class InvalidProducerIdMappingError(KafkaError):
    """The producer id is not the one of the transactional id."""

    code = ErrorCode.invalid_producer_id_mapping


class TransactionAbortableError(KafkaError):
    """The transaction cannot go on, but its producer can: it aborts and begins another."""

    code = ErrorCode.transaction_abortable


class TransactionalIdAuthorizationError(KafkaError):
    """The principal may not use the transactional id, or there is none."""

    code = ErrorCode.transactional_id_authorization_failed


class TransactionalIdNotFoundError(KafkaError):
    """There is no such transactional id."""

    code = ErrorCode.transactional_id_not_found


class ProducerFencedError(KafkaError):
    """Another producer has the transactional id now."""

    code = ErrorCode.producer_fenced


class TransactionCoordinatorFencedError(KafkaError):
    """A marker comes from a transaction coordinator that has been replaced."""

    code = ErrorCode.transaction_coordinator_fenced


class TopicAuthorizationError(KafkaError):
    """The principal may not do this to the topic."""

    code = ErrorCode.topic_authorization_failed


class GroupAuthorizationError(KafkaError):
    """The principal may not do this to the group."""

    code = ErrorCode.group_authorization_failed


class SecurityDisabledError(KafkaError):
    """No authorizer is configured."""

    code = ErrorCode.security_disabled


class ClusterAuthorizationError(KafkaError):
    """The principal may not do this to the cluster."""

    code = ErrorCode.cluster_authorization_failed


class UnsupportedVersionError(KafkaError):
    """The API version is outside the served range."""

    code = ErrorCode.unsupported_version


class UnsupportedEndpointTypeError(KafkaError):
    """Brokers do not answer for controllers."""

    code = ErrorCode.unsupported_endpoint_type


class FetchSessionNotFoundError(KafkaError):
    """The fetch session was evicted."""

    code = ErrorCode.fetch_session_id_not_found


class InvalidFetchSessionEpochError(KafkaError):
    """The fetch session's epoch does not match."""

    code = ErrorCode.invalid_fetch_session_epoch


class FetchSessionTopicIdError(KafkaError):
    """The fetch session was made with topic names and goes on with ids, or the other way round."""

    code = ErrorCode.fetch_session_topic_id_error


class ShareSessionNotFoundError(KafkaError):
    """The share session was closed, or its connection was."""

    code = ErrorCode.share_session_not_found


class InvalidShareSessionEpochError(KafkaError):
    """The share session expects another epoch."""

    code = ErrorCode.invalid_share_session_epoch


class ShareSessionLimitReachedError(KafkaError):
    """There are as many share sessions as `group.share.max.share.sessions` allows."""

    code = ErrorCode.share_session_limit_reached


class InvalidRecordStateError(KafkaError):
    """The record is not acquired, or not by the member that acknowledges it."""

    code = ErrorCode.invalid_record_state


class FencedStateEpochError(KafkaError):
    """The state of the share group was made anew since it was read."""

    code = ErrorCode.fenced_state_epoch


class StorageError(KafkaError):
    """The log directory failed and is offline."""

    code = ErrorCode.kafka_storage_error


class LogDirNotFoundError(KafkaError):
    """No such log directory."""

    code = ErrorCode.log_dir_not_found


class ThrottlingQuotaExceededError(KafkaError):
    """Too many changes in a short time."""

    code = ErrorCode.throttling_quota_exceeded


class MalformedFrameError(KafkaError):
    """The bytes are no message of this API and version; the connection is of no further use."""

    code = ErrorCode.invalid_request


class ShapeError(InvariantViolation):
    """Values do not fit the message class: a field would be lost, or is missing. A bug."""


class BadCompressionError(InvalidRecordError):
    """The records of a batch do not decompress: damaged, or not what the header says."""


class DecompressionLimitError(BatchTooLargeError):
    """The records of a batch decompress to more than is allowed."""


class SaslAuthenticationError(KafkaError):
    """Somebody is not who he says he is; the message is for him and tells no more than that."""

    code = ErrorCode.sasl_authentication_failed


class IllegalSaslStateError(KafkaError):
    """A request that a client may not send before, or while, it says who it is."""

    code = ErrorCode.illegal_sasl_state


class DelegationTokenAuthDisabledError(KafkaError):
    """The brokers have no key for delegation tokens (delegation.token.secret.key)."""

    code = ErrorCode.delegation_token_auth_disabled


class DelegationTokenNotFoundError(KafkaError):
    """There is no token with this secret."""

    code = ErrorCode.delegation_token_not_found


class DelegationTokenOwnerMismatchError(KafkaError):
    """Somebody else's token, which this one may not renew."""

    code = ErrorCode.delegation_token_owner_mismatch


class DelegationTokenRequestNotAllowedError(KafkaError):
    """Only who logged in over TLS or SASL may ask for tokens, and not who did so with a token."""

    code = ErrorCode.delegation_token_request_not_allowed


class DelegationTokenAuthorizationError(KafkaError):
    """The principal may not make tokens for this user."""

    code = ErrorCode.delegation_token_authorization_failed


class DelegationTokenExpiredError(KafkaError):
    """Its time is over, and it cannot be renewed."""

    code = ErrorCode.delegation_token_expired


class InvalidPrincipalTypeError(KafkaError):
    """A principal of another kind than `User`."""

    code = ErrorCode.invalid_principal_type


class UnacceptableCredentialError(KafkaError):
    """A credential that nobody should have: without a salt, or too easy to guess."""

    code = ErrorCode.unacceptable_credential


class DuplicateResourceError(KafkaError):
    """One thing is named twice in a request that names each once."""

    code = ErrorCode.duplicate_resource


class ResourceNotFoundError(KafkaError):
    """What shall be changed is not there."""

    code = ErrorCode.resource_not_found


class UnsupportedSaslMechanismError(KafkaError):
    """The broker does not have this mechanism on this listener."""

    code = ErrorCode.unsupported_sasl_mechanism


class ClientError(MoldauError):
    """A request did not come through; what the broker refuses is a `KafkaError`."""


class BrokerUnreachableError(ClientError):
    """Nobody accepts connections at the address, or what answers is no broker."""


class ClusterUnreachableError(BrokerUnreachableError):
    """None of the known addresses answers."""


class ConnectionLostError(ClientError):
    """The connection ended while an answer was due; whether the request was done is unknown."""


class NoAnswerError(ClientError):
    """The broker did not answer in time; whether the request was done is unknown."""


class TlsHandshakeError(ClientError):
    """The broker's certificate is not to be trusted, or is for another host. Trying again would
    not help."""


class UnsupportedByBrokerError(ClientError):
    """The broker and this client have no version of the request in common."""


class MalformedNodeError(KafkaError):
    """A node of the coordination store holds what no broker wrote; the message names its path."""


class InvalidRegularExpressionError(KafkaError):
    """The regular expression cannot be matched."""

    code = ErrorCode.invalid_regular_expression


class RegularExpressionsNotSupportedError(InvalidRegularExpressionError):
    """The broker matches no regular expressions. INVALID_REGULAR_EXPRESSION would blame the
    expression in clients that show no message. Their text for INVALID_REQUEST names an incompatible
    broker and points to its log."""

    code = ErrorCode.invalid_request


class UnknownMemberError(KafkaError):
    """The group has no such member."""

    code = ErrorCode.unknown_member_id


class StaleMemberEpochError(KafkaError):
    """The member is in another epoch by now."""

    code = ErrorCode.stale_member_epoch


class NotCoordinatorError(KafkaError):
    """Another broker coordinates this group."""

    code = ErrorCode.not_coordinator


class CoordinatorNotAvailableError(KafkaError):
    """Nobody coordinates this group at the moment."""

    code = ErrorCode.coordinator_not_available


class CoordinatorLoadInProgressError(KafkaError):
    """This broker has just taken over the group and reads its log."""

    code = ErrorCode.coordinator_load_in_progress


class RecordTooLargeError(BatchTooLargeError):
    """A record has more bytes than the producer may send (`max.request.size`)."""


class TransactionStateError(ClientError):
    """The producer is not where this is possible: outside a transaction, or within one."""


class TransactionAbortedError(ClientError):
    """The transaction was aborted, or can only be aborted: nothing of it counts."""


class ClosedClientError(ClientError):
    """The client was closed, or its process was forked; make a new one."""


class BufferFullError(ClientError):
    """Records are sent faster than brokers take them, and `buffer.memory` is used up."""


class DeliveryTimeoutError(ClientError):
    """A record was not confirmed within `delivery.timeout.ms`; the cause is the last failure."""


class TopicNotReadyError(ClientError):
    """The partitions of a topic are not known yet, and there was no time to ask."""


class GroupNotFoundError(KafkaError):
    """There is no such group."""

    code = ErrorCode.group_id_not_found


class GroupNotEmptyError(KafkaError):
    """The group has members."""

    code = ErrorCode.non_empty_group


class GroupSubscribedToTopicError(KafkaError):
    """Members of the group read this topic."""

    code = ErrorCode.group_subscribed_to_topic


class MissingExtraError(MoldauError, ImportError):
    """A part of Moldau needs a package that its extra would have installed."""


class RecordDeserializationError(ClientError):
    """A deserializer raised; the position stays at the record, so that one can seek past it."""

    def __init__(self, message: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class NoOffsetError(ClientError):
    """There is no offset to begin at, and `auto.offset.reset` says error."""


class LogTruncatedError(ClientError):
    """Records that were read are gone from the log (an unclean election), and
    `auto.offset.reset` says error. Reading can go on at `offset`."""

    def __init__(self, message: str, partition: TopicPartition, offset: int | None) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class NotAssignedError(ClientError):
    """The partition is not assigned to this consumer, or not any more."""


class CommitFailedError(ClientError):
    """The group went on without this member: its partitions have other owners, who will see the
    records again. Offsets were not committed."""


class AcknowledgementError(ClientError):
    """What became of a record of a queue did not reach the broker: its lock was over, or the
    partition has another leader. The record may be delivered again."""


class QueueEmptyError(ClientError, TimeoutError):
    """No record of a queue came within the time that was given."""


class OperationTimeoutError(ClientError):
    """The cluster did not do what was asked for within the time that was given."""


class DataLossError(ClientError):
    """Records were deleted before a query could read them, and it was not to go on without."""


class RegistryError(MoldauError):
    """A schema registry refused; `status` is HTTP's, `registry_code` its own, where it gave one."""

    def __init__(
        self, message: str, status: int | None = None, registry_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.registry_code = registry_code


class RegistryUnreachableError(RegistryError):
    """No registry answered in time; the message says which were asked, and why not."""


class RegistryAuthorizationError(RegistryError):
    """The registry does not know who asks, or does not let them."""


class SchemaNotFoundError(RegistryError):
    """The registry has no such schema, subject or version."""


class IncompatibleSchemaError(RegistryError):
    """The registry does not take the schema: readers or writers of older versions would fail."""


class SchemaDecodingError(MoldauError):
    """Bytes are not what a schema says, or do not tell their schema."""


class SchemaEncodingError(MoldauError):
    """A value does not fit its schema; the message says where."""


class LookUpNeededError(MoldauError):
    """A serializer has to ask somebody first, who may take a while.

    Clients see it, not programs: they call `look_up` where waiting holds up nothing, and then the
    serializer again. What `look_up` raises is the program's.
    """

    def __init__(self, what: str, look_up: Callable[[], object]) -> None:
        super().__init__(f"{what} has to be looked up first")
        self.look_up = look_up

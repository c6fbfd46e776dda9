"""Who may do what: the rules of lists, and handlers that ask."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_AUTHORIZER = "moldau.security.authorizer"
_NODES = "moldau.cluster.entity_znodes"
_HANDLERS = "moldau.broker.handlers"
_WALK = "unit/broker/handlers/test_authorization_walk.py"
_RIGHTS = (
    "unit/broker/handlers/test_authorization_rights.py::test_each_right_is_needed_and_no_other"
)
_FETCH = "unit/broker/handlers/test_authorization_fetch.py"
_STORIES = "unit/broker/handlers/test_authorization_handlers.py"

MUTANTS = (
    Mutant(
        name="decisions-outlive-the-lists",
        rule="kept decisions",
        breaks="somebody whose entry was removed goes on",
        edits=(Edit(_AUTHORIZER, "Authorizer._refresh", "self._decisions.clear()"),),
        tests=("unit/security/test_authorizer.py",),
        is_sample=True,
    ),
    Mutant(
        name="a-damaged-list-is-an-empty-one",
        rule="ACL-3",
        breaks="a list that cannot be read forbids nothing",
        edits=(Edit(_NODES, "decode_acls", "return DAMAGED", "return frozenset()"),),
        tests=("unit/cluster/test_acl_store.py",),
    ),
    Mutant(
        name="a-handler-does-not-ask",
        rule="ACL-2",
        breaks="anybody deletes records",
        edits=(
            Edit(
                f"{_HANDLERS}.delete_records",
                "_begin",
                "require_topic(context, AclOperation.DELETE, topic)",
            ),
        ),
        tests=(
            f"{_WALK}::test_a_handler_asks_the_authorizer",
            f"{_WALK}::test_somebody_who_may_do_nothing_is_refused",
            f"{_WALK}::test_what_exists_is_not_told_from_what_does_not",
        ),
        is_sample=True,
    ),
    Mutant(
        name="what-exists-is-looked-up-first",
        rule="ACL-2",
        breaks="offsets are asked of the partition before its reader is asked for",
        edits=(
            Edit(
                f"{_HANDLERS}.describe_producers",
                "_describe",
                "require_topic(context, AclOperation.READ, topic)",
                "context.services.partitions.require_any_replica(topic, index)\n"
                "require_topic(context, AclOperation.READ, topic)",
            ),
        ),
        tests=(f"{_WALK}::test_what_exists_is_not_told_from_what_does_not",),
    ),
    Mutant(
        name="a-client-follows-like-a-broker",
        rule="ACL-2",
        breaks="a client that says it is a replica moves what is committed",
        edits=(
            Edit(
                f"{_HANDLERS}.fetch",
                "handle_frame",
                "if request.replica_id >= 0 and (not may_cluster(context, "
                "AclOperation.CLUSTER_ACTION)): ...",
            ),
        ),
        tests=(f"{_FETCH}::test_nobody_but_a_broker_is_a_follower",),
    ),
    Mutant(
        name="a-session-lends-its-rights",
        rule="ACL-2",
        breaks="what a session was allowed counts for whoever continues it",
        edits=(
            Edit(
                f"{_HANDLERS}.fetch",
                "_rights",
                "(context.principal, context.host, authorizer.version)",
                "None",
            ),
        ),
        tests=(f"{_FETCH}::test_a_session_does_not_lend_its_rights_to_somebody_else",),
    ),
    Mutant(
        name="readers-that-wait-are-not-looked-at-again",
        rule="ACL-2",
        breaks="a reader that waits gets the next records of a topic that it may not read any more",
        edits=(
            Edit(
                "moldau.broker.server",
                "BrokerServer._on_image",
                "self.services.fetch_sessions.on_access_change()",
                "pass",
            ),
        ),
        tests=(f"{_FETCH}::test_a_reader_that_waits_is_told_when_it_may_not_read_any_more",),
    ),
    Mutant(
        name="topics-by-id-are-shown",
        rule="ACL-2",
        breaks="Metadata tells the name of a topic to whoever has its id",
        edits=(
            Edit(
                f"{_HANDLERS}.metadata",
                "_unless_hidden",
                "topic if may_see(context, AclResourceType.TOPIC, topic.name) else None",
                "topic",
            ),
        ),
        tests=(
            f"{_STORIES}::test_a_topic_asked_for_by_its_id_is_not_known_to_who_may_not_describe_it",
        ),
    ),
    Mutant(
        name="pages-of-partitions-name-every-topic",
        rule="ACL-2",
        breaks="DescribeTopicPartitions lists topics that the caller may not describe",
        edits=(
            Edit(
                f"{_HANDLERS}.describe_topic_partitions",
                "handle",
                "visible_topics(context, image.topics)",
                "image.topics",
            ),
        ),
        tests=(
            f"{_STORIES}::test_a_page_of_topic_partitions_has_the_topics_that_the_client_may_describe",
        ),
    ),
    Mutant(
        name="old-producers-add-partitions-without-write",
        rule="ACL-2",
        breaks="AddPartitionsToTxn 0 to 3 does not ask for WRITE of the topic",
        edits=(Edit(f"{_HANDLERS}.add_partitions_to_txn", "handle", "denied"),),
        tests=(f"{_STORIES}::test_partitions_are_added_to_a_transaction_by_who_may_write",),
    ),
    Mutant(
        name="a-consumer-group-shows-every-topic",
        rule="ACL-2",
        breaks="ConsumerGroupDescribe names topics that the caller may not describe",
        edits=(
            Edit(
                "moldau.broker.coordinator_requests",
                "describe_groups.describe.shape",
                "not _may_see_topics(found, context)",
                "False",
            ),
        ),
        tests=(f"{_STORIES}::test_a_consumer_group_is_described_to_who_may_describe_its_topics",),
    ),
    Mutant(
        name="a-transaction-shows-every-topic",
        rule="ACL-2",
        breaks="DescribeTransactions names topics that the caller may not describe",
        edits=(
            Edit(
                f"{_HANDLERS}.describe_transactions",
                "_values",
                "may_see(context, AclResourceType.TOPIC, topic)",
                "True",
            ),
        ),
        tests=(
            f"{_STORIES}::"
            "test_a_transaction_is_described_with_the_topics_that_the_client_may_describe",
        ),
    ),
    Mutant(
        name="offsets-are-committed-in-transactions-to-any-group",
        rule="ACL-2",
        breaks="TxnOffsetCommit does not ask for READ of the group",
        edits=(
            Edit(
                f"{_HANDLERS}.txn_offset_commit",
                "handle",
                "not may_group(context, AclOperation.READ, request.group_id)",
                "False",
            ),
        ),
        tests=(f"{_RIGHTS}[txn_offset_commit]",),
    ),
    Mutant(
        name="readers-of-a-group-delete-its-offsets",
        rule="ACL-2",
        breaks="OffsetDelete asks for READ of the group, not for DELETE",
        edits=(
            Edit(
                f"{_HANDLERS}.offset_delete", "handle", "AclOperation.DELETE", "AclOperation.READ"
            ),
        ),
        tests=(f"{_RIGHTS}[offset_delete]",),
    ),
    Mutant(
        name="tokens-for-others-need-no-right",
        rule="ACL-2",
        breaks="CreateDelegationToken for another user does not ask for CREATE_TOKENS of the user",
        edits=(
            Edit(
                f"{_HANDLERS}.create_delegation_token",
                "_create",
                "require_user(context, AclOperation.CREATE_TOKENS, str(owner))",
                "pass",
            ),
        ),
        tests=(f"{_RIGHTS}[create_delegation_token for another user]",),
    ),
    Mutant(
        name="offsets-of-a-share-group-name-every-topic",
        rule="ACL-2",
        breaks="DescribeShareGroupOffsets names topics that the caller may not describe",
        edits=(
            Edit(
                f"{_HANDLERS}.describe_share_group_offsets",
                "_wanted",
                "may_see(context, AclResourceType.TOPIC, topic.name)",
            ),
        ),
        tests=(
            f"{_STORIES}::"
            "test_offsets_of_a_share_group_are_shown_of_topics_that_the_client_may_describe",
        ),
    ),
    Mutant(
        name="confirm-a-list-by-an-old-read",
        rule="META-5",
        breaks="a change of a list that an old state needs not is confirmed, and not made",
        edits=(
            Edit(
                "moldau.cluster.acl_writer",
                "AclWriter._write",
                "await catch_up(self._coordination)",
            ),
        ),
        tests=("unit/cluster/test_old_reads.py::test_an_access_list_is_what_was_confirmed_last",),
    ),
    Mutant(
        name="lists-are-read-once",
        rule="ACL-4",
        breaks="a broker does not hear of changes that others make to the lists",
        edits=(
            Edit(
                "moldau.cluster.metadata_publisher",
                "MetadataPublisher._refresh_source",
                "await self._refresh_acls()",
                "pass",
            ),
        ),
        seeds=Seeds(count=5, access=True, by=("ACL-4",)),
    ),
    Mutant(
        name="nothing-is-decided-again",
        rule="ACL-4",
        breaks="what a user was allowed once is allowed for ever",
        edits=(
            Edit(
                "moldau.security.authorizer",
                "Authorizer._refresh",
                "self._decisions.clear()\nself._somewhere.clear()",
            ),
        ),
        seeds=Seeds(first=3, count=4, access=True, by=("ACL-4",)),
    ),
)

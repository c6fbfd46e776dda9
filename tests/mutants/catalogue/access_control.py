"""Who may do what: the rules of lists, and handlers that ask."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_RULES = "moldau.security.rules.authorization"
_AUTHORIZER = "moldau.security.authorizer"
_NODES = "moldau.cluster.acl_nodes"
_HANDLERS = "moldau.broker.handlers"
_TEST = "unit/security/rules/test_authorization.py"
_WALK = "unit/broker/handlers/test_authorization_walk.py"
_RIGHTS = (
    "unit/broker/handlers/test_authorization_rights.py::test_each_right_is_needed_and_no_other"
)
_FETCH = "unit/broker/handlers/test_authorization_fetch.py"
_STORIES = "unit/broker/handlers/test_authorization_handlers.py"

MUTANTS = (
    Mutant(
        name="what-allows-outweighs-what-denies",
        rule="ACL-1",
        breaks="an entry that denies is passed over where another one allows",
        edits=(
            Edit(
                _RULES,
                "    if _has(entries, AclPermission.DENY, (asked.operation,)):\n"
                "        return False\n",
                "",
            ),
        ),
        tests=(_TEST,),
        is_sample=True,
    ),
    Mutant(
        name="confirm-a-list-by-an-old-read",
        rule="META-5",
        breaks="a change of a list that an old state needs not is confirmed, and not made",
        edits=(
            Edit(
                "moldau.cluster.acl_writer",
                "        await catch_up(self._coordination)  # else",
                "        # else",
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
                "            case _Source.ACLS:\n                await self._refresh_acls()\n",
                "            case _Source.ACLS:\n                pass\n",
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
                _AUTHORIZER,
                "            self._decisions.clear()\n            self._somewhere.clear()\n",
                "",
            ),
        ),
        seeds=Seeds(first=3, count=4, access=True, by=("ACL-4",)),
    ),
    Mutant(
        name="a-denial-of-all-operations-is-none",
        rule="ACL-1",
        breaks="an entry about ALL is about nothing",
        edits=(Edit(_RULES, " or entry.operation is AclOperation.ALL", ""),),
        tests=(_TEST,),
    ),
    Mutant(
        name="prefixes-are-literal",
        rule="patterns",
        breaks="a prefixed pattern holds for the resource of its very name alone",
        edits=(Edit(_RULES, "prefixes.get(name[:length])", "prefixes.get(name)"),),
        tests=(_TEST,),
    ),
    Mutant(
        name="the-wildcard-is-a-name",
        rule="patterns",
        breaks="a literal * holds for nothing",
        edits=(Edit(_RULES, "for literal in {name, ANYTHING}:", "for literal in (name,):"),),
        tests=(_TEST,),
    ),
    Mutant(
        name="entries-are-about-every-host",
        rule="entries",
        breaks="an entry for one host is for all",
        edits=(Edit(_RULES, " and _is_host(entry.host, host)", ""),),
        tests=(_TEST,),
    ),
    Mutant(
        name="who-is-in-no-list-may-do-everything",
        rule="allow.everyone.if.no.acl.found",
        breaks="a resource that has no list is open to everybody",
        edits=(
            Edit(_RULES, "        return policy.allows_without_acls\n", "        return True\n"),
        ),
        tests=(_TEST, f"{_WALK}::test_somebody_who_may_do_nothing_is_refused"),
    ),
    Mutant(
        name="what-denies-read-denies-describe",
        rule="implied operations",
        breaks="a denial counts for the operations that a permission would imply",
        edits=(
            Edit(
                _RULES,
                "    if _has(entries, AclPermission.DENY, (asked.operation,)):\n"
                "        return False\n",
                "    if _has(entries, AclPermission.DENY, _IMPLIED_BY.get(asked.operation, "
                "(asked.operation,))):\n"
                "        return False\n",
            ),
        ),
        tests=(_TEST,),
    ),
    Mutant(
        name="a-prefix-that-denies-does-not-count-for-producer-ids",
        rule="idempotent writes",
        breaks="who is denied all that he is allowed has a producer id",
        edits=(
            Edit(
                _RULES,
                "            if pattern.name.startswith(other.name):\n",
                "            if False:\n",
            ),
        ),
        tests=(_TEST,),
    ),
    Mutant(
        name="decisions-outlive-the-lists",
        rule="kept decisions",
        breaks="somebody whose entry was removed goes on",
        edits=(
            Edit(
                _AUTHORIZER,
                "            self._decisions.clear()\n            self._somewhere",
                "            self._somewhere",
            ),
        ),
        tests=("unit/security/test_authorizer.py",),
        is_sample=True,
    ),
    Mutant(
        name="a-damaged-list-is-an-empty-one",
        rule="ACL-3",
        breaks="a list that cannot be read forbids nothing",
        edits=(Edit(_NODES, "        return DAMAGED\n", "        return frozenset()\n"),),
        tests=("unit/cluster/test_acl_store.py",),
    ),
    Mutant(
        name="a-handler-does-not-ask",
        rule="ACL-2",
        breaks="anybody deletes records",
        edits=(
            Edit(
                f"{_HANDLERS}.delete_records",
                "        require_topic(context, AclOperation.DELETE, topic)\n",
                "",
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
                "        require_topic(context, AclOperation.READ, topic)\n"
                "        partition = context.services",
                "        context.services.partitions.require_any_replica(topic, index)\n"
                "        require_topic(context, AclOperation.READ, topic)\n"
                "        partition = context.services",
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
                "    if request.replica_id >= 0 and not may_cluster("
                "context, AclOperation.CLUSTER_ACTION):\n"
                "        return _refuse_follower(request, context)\n",
                "",
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
                "    return context.principal, context.host, authorizer.version\n",
                "    return None\n",
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
                "            self.services.fetch_sessions.on_access_change()\n",
                "            pass\n",
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
                "topic if may_see(context, AclResourceType.TOPIC, topic.name) else None\n",
                "topic\n",
            ),
        ),
        tests=(
            f"{_STORIES}::test_a_topic_asked_for_by_its_id_is_not_known_to_who_may_not_describe_it",
        ),
    ),
    Mutant(
        name="a-super-user-is-matched-by-name",
        rule="super.users",
        breaks="a principal of another kind with the name of a super user may do everything",
        edits=(
            Edit(
                _RULES,
                '    """Whether somebody may do something to one resource."""\n'
                "    if asked.principal in policy.super_users:\n",
                '    """Whether somebody may do something to one resource."""\n'
                "    if asked.principal.name in {one.name for one in policy.super_users}:\n",
            ),
        ),
        tests=(f"{_TEST}::test_a_super_user_is_matched_by_kind_and_name",),
    ),
    Mutant(
        name="pages-of-partitions-name-every-topic",
        rule="ACL-2",
        breaks="DescribeTopicPartitions lists topics that the caller may not describe",
        edits=(
            Edit(
                f"{_HANDLERS}.describe_topic_partitions",
                "sorted(named or visible_topics(context, image.topics))",
                "sorted(named or image.topics)",
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
        edits=(
            Edit(
                f"{_HANDLERS}.add_partitions_to_txn",
                "    errors = denied or await _add_one(\n",
                "    errors = await _add_one(\n",
            ),
        ),
        tests=(f"{_STORIES}::test_partitions_are_added_to_a_transaction_by_who_may_write",),
    ),
    Mutant(
        name="a-consumer-group-shows-every-topic",
        rule="ACL-2",
        breaks="ConsumerGroupDescribe names topics that the caller may not describe",
        edits=(
            Edit(
                "moldau.broker.group_descriptions",
                "            if not _may_see_topics(found, context):\n",
                "            if False:\n",
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
                "        if may_see(context, AclResourceType.TOPIC, topic):\n",
                "        if True:\n",
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
                "    if not may_group(context, AclOperation.READ, request.group_id):\n",
                "    if False:\n",
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
                f"{_HANDLERS}.offset_delete",
                "may_group(context, AclOperation.DELETE, request.group_id)",
                "may_group(context, AclOperation.READ, request.group_id)",
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
                "        require_user(context, AclOperation.CREATE_TOKENS, str(owner))\n",
                "        pass\n",
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
                "            if may_see(context, AclResourceType.TOPIC, topic.name)\n",
                "",
            ),
        ),
        tests=(
            f"{_STORIES}::"
            "test_offsets_of_a_share_group_are_shown_of_topics_that_the_client_may_describe",
        ),
    ),
)

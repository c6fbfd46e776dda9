"""Quotas: whose account is charged, for how much, and who waits."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_BUCKET = "moldau.quotas.rules.token_bucket"
_TABLE = "moldau.quotas.rules.quota_table"
_CHARGE = "moldau.broker.request_charge"
_BUCKETS = "unit/quotas/rules/test_token_bucket.py"
_ENTITIES = "unit/quotas/rules/test_quota_entities.py"
_IN_MEMORY = "unit/broker/test_quotas_in_memory.py"

MUTANTS = (
    Mutant(
        name="a-quota-parts-aborted-records-from-their-marker",
        rule="an answer carries as much of a quota as in Kafka",
        breaks="clients that look for the marker in the same answer show aborted records",
        edits=(
            Edit(
                _CHARGE,
                "round(self._quotas.fetch_burst(applied))",
                "round(applied.limit / 4)",
            ),
        ),
        tests=(
            "unit/broker/test_partition_transactions.py"
            "::test_a_quota_does_not_part_aborted_records_from_their_marker",
        ),
    ),
    Mutant(
        name="an-idle-account-saves-up-for-ever",
        rule="QUO-1",
        breaks="a client that was idle for an hour may use an hour's worth at once",
        edits=(
            Edit(
                _BUCKET,
                "        return Bucket(min(burst, self.tokens + rate * (now - self.at)), now)\n",
                "        return Bucket(self.tokens + rate * (now - self.at), now)\n",
            ),
        ),
        tests=(f"{_BUCKETS}::test_an_idle_account_saves_up_no_more_than_the_burst",),
    ),
    Mutant(
        name="a-debt-is-forgiven",
        rule="QUO-1",
        breaks="a request that costs more than there is costs only what there is",
        edits=(
            Edit(
                _BUCKET,
                "        return Bucket(self.tokens - amount, self.at)\n",
                "        return Bucket(max(0.0, self.tokens - amount), self.at)\n",
            ),
        ),
        tests=(f"{_BUCKETS}::test_who_never_pauses_gets_the_whole_rate",),
    ),
    Mutant(
        name="a-users-quota-comes-after-that-of-its-client-id",
        rule="QUO-2",
        breaks="the default of a client id wins over the quota of the user",
        edits=(
            Edit(
                _TABLE,
                "            (QuotaEntity(user), user, None),\n",
                "            (QuotaEntity(None, client_id), None, client_id),\n"
                "            (QuotaEntity(user), user, None),\n",
            ),
        ),
        tests=(f"{_ENTITIES}::test_the_most_particular_quota_holds",),
    ),
    Mutant(
        name="clients-of-a-user-have-an-account-each",
        rule="QUO-2",
        breaks="a user gets its quota once for each client id that it uses",
        edits=(
            Edit(
                _TABLE,
                "            (QuotaEntity(user), user, None),\n",
                "            (QuotaEntity(user), user, client_id),\n",
            ),
        ),
        tests=(f"{_ENTITIES}::test_the_most_particular_quota_holds",),
    ),
    Mutant(
        name="who-exceeds-a-quota-is-told-and-not-muted",
        rule="QUO-3",
        breaks="a client that does not heed the time that it is told gets all that it wants",
        edits=(Edit(_CHARGE, "        self._connection.mute()\n", ""),),
        tests=(f"{_IN_MEMORY}::test_a_producer_waits_as_long_as_it_is_told_and_others_do_not",),
    ),
    Mutant(
        name="brokers-have-quotas",
        rule="QUO-3",
        breaks="a default quota holds up the copying of replicas",
        edits=(
            Edit(
                _CHARGE,
                "    if client_id.startswith(_BROKER_PREFIX) and",
                "    if False and",
            ),
        ),
        tests=(f"{_IN_MEMORY}::test_brokers_copy_without_a_quota",),
    ),
    Mutant(
        name="clients-wait-for-a-quota-that-is-gone",
        rule="QUO-3",
        breaks="a muted connection waits as long as a quota asked for that was raised or removed",
        edits=(
            Edit(
                "moldau.quotas.client_quotas",
                "            if applied != waiting.applied:\n",
                "            if False:\n",
            ),
        ),
        tests=(
            f"{_IN_MEMORY}::test_a_producer_that_waits_follows_a_change_of_its_quota",
            f"{_IN_MEMORY}::test_a_consumer_that_waits_follows_a_change_of_its_quota",
            f"{_IN_MEMORY}::test_quotas_that_change_all_the_time_stop_nobody",
        ),
    ),
    Mutant(
        name="a-changed-quota-forgives-what-is-owed",
        rule="QUO-3",
        breaks="a client whose quota changes goes on before what it owes is paid at the new rate",
        edits=(
            Edit(
                "moldau.quotas.client_quotas",
                "shorten(0.0 if applied is None else self.seconds_of_debt(applied))",
                "shorten(0.0)",
            ),
        ),
        tests=(f"{_IN_MEMORY}::test_a_producer_that_waits_follows_a_change_of_its_quota",),
    ),
    Mutant(
        name="the-name-of-a-broker-frees-from-quotas",
        rule="QUO-3",
        breaks="a client that calls itself a broker has no quota on a listener of clients",
        edits=(
            Edit(
                _CHARGE,
                "return is_for_brokers(connection.listener_name, own, services.options)",
                "return True",
            ),
        ),
        tests=(
            f"{_IN_MEMORY}"
            "::test_the_name_of_a_broker_frees_from_quotas_on_the_listener_of_brokers_alone",
        ),
    ),
)

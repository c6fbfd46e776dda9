"""Quotas: whose account is charged, for how much, and who waits."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_CHARGE = "moldau.broker.throttling"
_IN_MEMORY = "unit/broker/test_quotas_in_memory.py"

MUTANTS = (
    Mutant(
        name="a-quota-parts-aborted-records-from-their-marker",
        rule="an answer carries as much of a quota as in Kafka",
        breaks="clients that look for the marker in the same answer show aborted records",
        edits=(
            Edit(
                _CHARGE,
                "RequestThrottle.allowed_fetch_bytes",
                "self._quotas.fetch_burst(applied)",
                "applied.limit / 4",
            ),
        ),
        tests=(
            "unit/broker/test_partition_transactions.py"
            "::test_a_quota_does_not_part_aborted_records_from_their_marker",
        ),
    ),
    Mutant(
        name="who-exceeds-a-quota-is-told-and-not-muted",
        rule="QUO-3",
        breaks="a client that does not heed the time that it is told gets all that it wants",
        edits=(Edit(_CHARGE, "MutedConnection.mute", "self._connection.mute()"),),
        tests=(f"{_IN_MEMORY}::test_a_producer_waits_as_long_as_it_is_told_and_others_do_not",),
    ),
    Mutant(
        name="brokers-have-quotas",
        rule="QUO-3",
        breaks="a default quota holds up the copying of replicas",
        edits=(Edit(_CHARGE, "make_throttle", "client_id.startswith(_BROKER_PREFIX)", "False"),),
        tests=(f"{_IN_MEMORY}::test_brokers_copy_without_a_quota",),
    ),
    Mutant(
        name="clients-wait-for-a-quota-that-is-gone",
        rule="QUO-3",
        breaks="a muted connection waits as long as a quota asked for that was raised or removed",
        edits=(
            Edit(
                "moldau.quotas",
                "ClientQuotas.apply",
                "applied != waiting.applied",
                "False",
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
                "moldau.quotas",
                "ClientQuotas.apply",
                "0.0 if applied is None else self.seconds_of_debt(applied)",
                "0.0",
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
                "_is_broker",
                "is_for_brokers(connection.listener_name, own, services.options)",
                "True",
            ),
        ),
        tests=(
            f"{_IN_MEMORY}"
            "::test_the_name_of_a_broker_frees_from_quotas_on_the_listener_of_brokers_alone",
        ),
    ),
)

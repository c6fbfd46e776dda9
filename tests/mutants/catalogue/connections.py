"""Connections: answers that are owed while batches wait for the replicas, and who may connect."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_OWED = "moldau.broker.dispatch"
_DISPATCH = "moldau.broker.dispatch"
_MEMORY = "moldau.simulation.memory_connection"
_SOCKET = "moldau.net.connection"
_REPLICATED = "unit/broker/handlers/test_replicated_data.py"
_NETWORK = "contract/test_network.py"
_SLOTS = "moldau.net.connection_quotas"
_QUOTAS = "moldau.net.connection_quotas"
_SLOT_TESTS = "unit/net/test_connection_slots.py"

MUTANTS = (
    Mutant(
        name="answers-leave-when-they-are-known",
        rule="NET-1",
        breaks="an answer that is known early leaves before those to earlier requests",
        edits=(
            Edit(
                _OWED,
                "ResponseQueue.answer",
                "place.chunks = chunks",
                "place.chunks = chunks\nself._owed.remove(place)\nreturn [chunks]",
            ),
        ),
        tests=(
            "unit/broker/test_response_order.py"
            "::test_answers_leave_in_order_and_as_soon_as_those_before_them",
        ),
    ),
    Mutant(
        name="a-question-overtakes-what-was-produced",
        rule="NET-1",
        breaks="a client that asks for the end does not find what it has produced before",
        edits=(
            Edit(
                _DISPATCH,
                "RequestPump._is_postponed",
                "self._owed and header.api_key != PRODUCE.key",
                "False",
            ),
        ),
        tests=(
            f"{_REPLICATED}"
            "::test_any_other_request_waits_until_what_was_produced_before_it_is_answered",
        ),
    ),
    Mutant(
        name="answers-are-owed-without-end",
        rule="NET-1",
        breaks="a client can have any number of requests wait for the replicas",
        edits=(
            Edit(_MEMORY, "MemoryConnection._find_frame", "self._owed >= MOST_OWED_ANSWERS"),
            Edit(_SOCKET, "SocketConnection._process", "self._owed >= self._most_owed"),
        ),
        tests=(
            f"{_NETWORK}::test_no_frame_comes_while_too_many_answers_are_owed",
            f"{_REPLICATED}"
            "::test_what_a_client_sent_before_it_went_is_appended_and_nobody_waits_for_it",
        ),
    ),
    Mutant(
        name="brokers-wait-behind-clients",
        rule="max.connections",
        breaks="clients that hold all connections keep the brokers from each other",
        edits=(Edit(_SLOTS, "has_slot", "is_protected"),),
        tests=(
            f"{_SLOT_TESTS}::test_brokers_need_one_of_their_listener_only",
            f"{_NETWORK}::test_brokers_find_room_by_the_connection_that_was_not_used_for_longest",
        ),
    ),
    Mutant(
        name="a-listener-has-no-limit-of-its-own",
        rule="max.connections",
        breaks="one listener takes the connections of all others",
        edits=(Edit(_SLOTS, "has_slot", "of_listener.held >= of_listener.most", "False"),),
        tests=(
            f"{_SLOT_TESTS}::test_a_client_needs_a_slot_of_its_listener_and_of_the_broker",
            f"{_NETWORK}::test_a_full_listener_leaves_the_others_alone",
        ),
    ),
    Mutant(
        name="a-busy-connection-goes-before-an-idle-one",
        rule="max.connections",
        breaks="the connection that is closed for a broker is one in use",
        edits=(Edit(_QUOTAS, "_idleness", "is_used", "not is_used"),),
        tests=(
            f"{_NETWORK}::test_brokers_find_room_by_the_connection_that_was_not_used_for_longest",
        ),
    ),
    Mutant(
        name="brokers-are-closed-for-brokers",
        rule="max.connections",
        breaks="connections among brokers are closed although clients hold others",
        edits=(
            Edit(
                _QUOTAS,
                "ConnectionQuotas.close_excess",
                "not self.limits.is_protected(acceptor.listener_name)",
                "self.limits.is_protected(acceptor.listener_name)",
            ),
        ),
        tests=(
            f"{_NETWORK}::test_brokers_find_room_by_the_connection_that_was_not_used_for_longest",
        ),
    ),
    Mutant(
        name="who-waits-is-not-called",
        rule="max.connections",
        breaks="a connection that ended makes room, and nobody is let in",
        edits=(Edit(_QUOTAS, "ConnectionQuotas.remove", "acceptor.accept_again()", "pass"),),
        tests=(f"{_NETWORK}::test_beyond_the_limit_a_connection_waits_until_another_ends",),
    ),
    Mutant(
        name="connections-come-at-any-rate",
        rule="max.connection.creation.rate",
        breaks="accepted connections do not count against the rate",
        edits=(
            Edit(
                _SLOTS,
                "CreationPace.accepted",
                "self if rate <= 0 else CreationPace(max(self.due, now) + 1.0 / rate)",
                "self",
            ),
        ),
        tests=(
            f"{_SLOT_TESTS}::test_the_rate_may_come_at_once_and_then_evenly",
            f"{_NETWORK}::test_connections_are_accepted_at_a_bounded_rate",
        ),
    ),
    Mutant(
        name="clients-take-the-rate-of-brokers",
        rule="max.connection.creation.rate",
        breaks="brokers wait for each other because clients connect fast",
        edits=(Edit(_QUOTAS, "ConnectionQuotas.seconds_until_slot", "not is_protected", "True"),),
        tests=(f"{_NETWORK}::test_the_rate_of_clients_does_not_hold_up_brokers",),
    ),
    Mutant(
        name="addresses-count-for-each-listener",
        rule="max.connections.per.ip",
        breaks="an address is not refused, whatever it holds",
        edits=(
            Edit(
                _QUOTAS,
                "ConnectionQuotas.find_refusal",
                "self._by_host[host] >= most",
                "self._by_host[host] > most",
            ),
        ),
        tests=(
            f"{_NETWORK}::test_connections_of_an_address_are_counted_over_all_listeners",
            f"{_NETWORK}::test_a_closed_connection_makes_room_for_another",
        ),
    ),
    Mutant(
        name="closed-connections-wait-for-the-collector",
        rule="NET-2",
        breaks="who opens and closes connections as fast as he can fills the memory",
        edits=(
            Edit(
                _SOCKET,
                "SocketConnection.close",
                "receiver, self._receiver = (self._receiver, None)",
                "receiver = self._receiver",
            ),
        ),
        tests=("unit/net/test_closed_connections.py",),
    ),
    Mutant(
        name="a-change-is-cancelled-when-its-client-goes",
        rule="NET-4",
        breaks="a request that changes the cluster is cancelled in its middle, and not audited",
        edits=(
            Edit(
                "moldau.broker.dispatch",
                "RequestPump._finish_response",
                "module.API.changes_cluster",
                "False",
            ),
        ),
        tests=(
            "unit/broker/test_send_and_go.py::"
            "test_a_broker_is_unregistered_and_audited_after_the_client_has_gone",
        ),
    ),
)

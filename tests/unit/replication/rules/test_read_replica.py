"""KIP-392: a consumer reads from a replica in its own rack, if that one has what it wants."""

from dataclasses import replace

from moldau.replication.rules.replica import ReadableReplica, choose_read_replica

NEAR = ReadableReplica(rack="a", log_start_offset=0, log_end_offset=100, caught_up_at=5.0)
FAR = replace(NEAR, rack="b")


def choose(followers, *, client="a", leader="b", offset=50):
    return choose_read_replica(
        followers, client_rack=client, leader_rack=leader, fetch_offset=offset
    )


def test_the_replica_in_the_clients_rack_is_chosen():
    assert choose({2: FAR, 3: NEAR}) == 3


def test_a_leader_in_the_same_rack_serves_itself():
    assert choose({3: NEAR}, leader="a") is None


def test_a_client_without_a_rack_reads_from_the_leader():
    assert choose({3: replace(NEAR, rack="")}, client="") is None


def test_a_replica_that_does_not_have_the_offset_is_passed_over():
    assert choose({3: NEAR}, offset=101) is None
    assert choose({3: replace(NEAR, log_start_offset=51)}) is None
    assert choose({3: replace(NEAR, log_start_offset=-1, log_end_offset=-1)}) is None


def test_the_one_that_has_most_is_chosen_and_then_the_fresher_one():
    behind = replace(NEAR, log_end_offset=90, caught_up_at=9.0)
    assert choose({2: behind, 3: NEAR}) == 3
    assert choose({2: replace(NEAR, caught_up_at=9.0), 3: NEAR}) == 2

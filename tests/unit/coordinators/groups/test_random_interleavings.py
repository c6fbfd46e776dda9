"""Whatever members do, and in whatever order: the group stays sound, and settles in the end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_clients import GROUP, Simulation

from moldau.coordinators.groups.rules.classic_group import ClassicGroupState
from moldau.coordinators.groups.rules.outcome import GroupLimits
from moldau.errors import ErrorCode

CLIENTS = 4

versions = st.lists(st.sampled_from([0, 3, 5, 9]), min_size=CLIENTS, max_size=CLIENTS)
whose = st.integers(0, CLIENTS - 1)
limits = st.builds(GroupLimits, initial_rebalance_delay_ms=st.sampled_from([0, 0, 3_000]))

peaceful_steps = st.lists(
    st.tuples(st.sampled_from(["act", "act", "act", "new", "beat", "leave"]), whose), max_size=50
)
troubles = ["cut", "kill", "come", "wait", "restart", "fail", "work"]
rough_steps = st.lists(
    st.tuples(st.sampled_from(["act", "act", "act", "new", "beat", "leave", *troubles]), whose),
    max_size=60,
)


def start(chosen: list[int], chosen_limits: GroupLimits, *, with_static: bool) -> Simulation:
    """The last two clients are static members, if any is."""
    simulation = Simulation(chosen_limits)
    for number, version in enumerate(chosen):
        is_static = with_static and number >= CLIENTS - 2 and version >= 5
        simulation.add(version, f"instance-{number}" if is_static else None)
    return simulation


def step(simulation: Simulation, what: str, who: int) -> None:
    client = simulation.clients[who]
    match what:
        case "act":
            simulation.act(client)
        case "new":
            simulation.rejoin(client, bytes([who, simulation.now_ms % 7]))
        case "beat":
            simulation.wait_with_heartbeats(1_000)
        case "leave":
            simulation.leave(client)
        case "cut":
            simulation.disconnect(client)
        case "kill":
            simulation.kill(client)
        case "come":
            if not client.is_alive:
                client.is_alive = True
                client.forget()
        case "wait":
            simulation.wait(7_000 * (who + 1))
        case "restart":
            simulation.restart()
        case "fail":
            simulation.writes_fail = True
        case "work":
            simulation.writes_fail = False


def assert_settled(simulation: Simulation) -> None:
    """Those who live, and nobody else, are in one generation, each with its own assignment."""
    alive = simulation.alive()
    group = simulation.groups.find(GROUP)
    if not alive:
        assert group is None or group.state is ClassicGroupState.EMPTY
        return
    assert group is not None
    assert group.state is ClassicGroupState.STABLE
    assert {member.member_id for member in group.members} == {one.member_id for one in alive}
    for client in alive:
        assert client.generation == group.generation
        assert client.assignment is not None
        assert client.assignment.split(b":")[0] == str(group.generation).encode() or (
            client.instance_id is not None
        )
    assigned = [client.assignment for client in alive if client.instance_id is None]
    assert len(set(assigned)) == len(assigned), "two members have the same assignment"


@settings(deadline=None)
@given(versions, limits, peaceful_steps)
def test_a_live_member_is_never_told_that_it_is_unknown(
    chosen: list[int], chosen_limits: GroupLimits, steps: list[tuple[str, int]]
) -> None:
    """Members come, change and leave while others rebalance; nobody who behaves is thrown out."""
    simulation = start(chosen, chosen_limits, with_static=True)
    for what, who in steps:
        step(simulation, what, who)
    simulation.settle()

    assert_settled(simulation)
    errors = {error for client in simulation.clients for error in client.errors}
    assert not errors, f"{errors}"


@settings(max_examples=200, deadline=None)
@given(versions, limits, rough_steps)
def test_a_group_is_sound_whatever_fails_and_settles_when_nothing_does_any_more(
    chosen: list[int], chosen_limits: GroupLimits, steps: list[tuple[str, int]]
) -> None:
    simulation = start(chosen, chosen_limits, with_static=True)
    for what, who in steps:
        step(simulation, what, who)
    simulation.writes_fail = False
    simulation.settle()

    assert_settled(simulation)


@settings(deadline=None)
@given(versions, rough_steps)
def test_loading_the_log_leads_to_the_state_that_was_logged(
    chosen: list[int], steps: list[tuple[str, int]]
) -> None:
    """What a coordinator that takes over knows is what the former one had logged, no more."""
    simulation = start(chosen, GroupLimits(), with_static=True)
    for what, who in steps:
        step(simulation, what, who)
    live = simulation.groups.find(GROUP)
    stored = None if live is None else live.stored
    simulation.restart()
    loaded = simulation.groups.find(GROUP)

    assert (None if loaded is None else loaded.stored) == stored


def test_newcomers_and_members_at_work_do_not_get_into_each_others_way() -> None:
    """Thirty consumers start one after the other while the first ones already work."""
    simulation = Simulation()
    for _ in range(30):
        simulation.act(simulation.add())
        for client in simulation.clients:
            simulation.act(client)
        simulation.wait_with_heartbeats(100)
    simulation.settle()

    assert_settled(simulation)
    assert all(ErrorCode.unknown_member_id not in client.errors for client in simulation.clients)

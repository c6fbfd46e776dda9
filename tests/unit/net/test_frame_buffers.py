"""A buffer serves again when nobody looks into it any more, and not a moment before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.net.channel import FrameBuffers

MIB = 1024 * 1024


def fill(view: memoryview, number: int) -> None:
    view[:] = bytes([number % 251]) * len(view)


def test_a_buffer_that_was_let_go_is_taken_again() -> None:
    buffers = FrameBuffers()
    first = buffers.take(MIB)
    address = id(first.obj)
    del first
    assert id(buffers.take(MIB - 5).obj) == address


def test_whoever_holds_a_part_of_a_frame_holds_all_of_it() -> None:
    buffers = FrameBuffers()
    frame = buffers.take(MIB)
    fill(frame, 7)
    part = frame[10:20]
    del frame
    fill(buffers.take(MIB), 8)
    assert bytes(part) == bytes([7]) * 10


def test_what_is_larger_than_all_that_may_be_kept_is_not_kept() -> None:
    buffers = FrameBuffers(most_kept_bytes=MIB)
    kept = id(buffers.take(MIB).obj)
    assert len(buffers.take(2 * MIB)) == 2 * MIB
    assert id(buffers.take(MIB).obj) == kept


def test_the_least_recently_used_buffer_makes_room() -> None:
    buffers = FrameBuffers(most_kept_bytes=2 * MIB)
    held = [buffers.take(MIB) for _ in range(3)]
    addresses = [id(one.obj) for one in held]
    del held
    again = [buffers.take(MIB) for _ in range(2)]
    assert {id(one.obj) for one in again} == set(addresses[1:])


@given(st.lists(st.tuples(st.integers(1, 600_000), st.booleans()), max_size=25))
def test_no_frame_changes_while_it_is_held(frames: list[tuple[int, bool]]) -> None:
    buffers = FrameBuffers(most_kept_bytes=MIB)
    held: list[tuple[memoryview, int]] = []
    for number, (size, is_kept) in enumerate(frames):
        view = buffers.take(size)
        assert len(view) == size
        fill(view, number)
        if is_kept:
            held.append((view, number))
        elif held:
            held.pop(0)
        del view
    for view, number in held:
        assert view[0] == view[-1] == number % 251

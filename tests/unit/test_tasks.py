"""Tasks with an owner."""

from __future__ import annotations

import asyncio

from moldau.tasks import TaskSupervisor


def test_a_task_that_was_spawned_just_before_the_end_begins_and_cleans_up() -> None:
    seen: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    async def outer(work: asyncio.Future[None]) -> None:
        await work

    async def story() -> None:
        supervisor = TaskSupervisor(lambda name, error: seen.append(f"{name}: {error!r}"))
        supervisor.spawn("late", outer(inner()))  # type: ignore[arg-type]
        await supervisor.close()

    asyncio.run(story())
    assert seen == ["cleaned up"]


def test_every_failure_is_heard_of_and_ends_nobody_else() -> None:
    seen: list[str] = []

    async def fail() -> None:
        raise OSError("disk")

    async def story() -> None:
        supervisor = TaskSupervisor(lambda name, error: seen.append(f"{name}: {error}"))
        other = supervisor.spawn("other", asyncio.Event().wait())  # type: ignore[arg-type]
        await asyncio.wait([supervisor.spawn("one", fail())])
        assert not other.done()
        await supervisor.close()
        assert other.cancelled()

    asyncio.run(story())
    assert seen == ["one: disk"]

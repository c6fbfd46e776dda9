"""The tree does what a plain dictionary would, for any sequence of transactions and sessions."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordination.embedded import FILE_NAME, EmbeddedSession, EmbeddedStore
from moldau.coordination.port import (
    ANY_VERSION,
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
)
from moldau.simulation.manual_clock import ManualClock
from moldau.workers import InlineWorkers

SESSIONS = 2

names = st.sampled_from(["a", "b"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
versions = st.sampled_from([ANY_VERSION, 0, 1, 2])
data = st.binary(max_size=3)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, path=paths, data=data, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(SetData, path=paths, data=data, version=versions),
    st.builds(Delete, path=paths, version=versions),
    st.builds(Check, path=paths, version=versions),
)


@dataclass
class ModelNode:
    data: bytes
    version: int = 0
    owner: int = 0
    children_made: int = 0


@dataclass
class Model:
    """What the store should hold, written as simply as possible."""

    nodes: dict[str, ModelNode] = field(default_factory=lambda: {"/": ModelNode(b"")})

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = (found[len(prefix) :] for found in self.nodes if found.startswith(prefix))
        return sorted(name for name in below if name and "/" not in name)

    def transact(self, operations: list[Operation], session: int) -> list[str] | str:
        """The paths, or the name of the error."""
        before = copy.deepcopy(self.nodes)
        try:
            return [self._perform(operation, session) for operation in operations]
        except CoordinationError as error:
            self.nodes = before
            return type(error).__name__

    def _perform(self, operation: Operation, session: int) -> str:
        if isinstance(operation, Create):
            return self._create(operation, session)
        node = self.nodes.get(operation.path)
        if node is None:
            raise NoNodeError
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError
        if isinstance(operation, SetData):
            node.data = operation.data
            node.version += 1
        elif isinstance(operation, Delete):
            if self.children(operation.path):
                raise NotEmptyError
            del self.nodes[operation.path]
        return ""

    def _create(self, operation: Create, session: int) -> str:
        parent = self.nodes.get(operation.path.rpartition("/")[0] or "/")
        if parent is None:
            raise NoNodeError
        if parent.owner:
            raise EphemeralParentError
        path = operation.path
        if operation.sequential:
            path += str(parent.children_made).zfill(10)
        if path in self.nodes:
            raise NodeExistsError
        parent.children_made += 1
        self.nodes[path] = ModelNode(operation.data, owner=session if operation.ephemeral else 0)
        return path

    def end(self, session: int) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if node.owner != session}


@dataclass(frozen=True)
class Transact:
    session: int
    operations: list[Operation]


@dataclass(frozen=True)
class EndSession:
    session: int


@dataclass(frozen=True)
class Restart:
    pass


numbers = st.integers(0, SESSIONS - 1)
steps = st.one_of(
    st.builds(Transact, session=numbers, operations=st.lists(operations, min_size=1, max_size=4)),
    st.builds(Transact, session=numbers, operations=st.lists(operations, min_size=1, max_size=4)),
    st.builds(EndSession, session=numbers),
    st.just(Restart()),
)


class Stage:
    """The store under test and its model, side by side."""

    def __init__(self, location: Path) -> None:
        self._location = location
        self.model = Model()

    async def open(self) -> None:
        self.store = await EmbeddedStore.open(
            self._location, clock=ManualClock(), workers=InlineWorkers()
        )
        self.sessions: list[EmbeddedSession] = [self.store.session() for _ in range(SESSIONS)]

    async def take(self, step: Transact | EndSession | Restart) -> None:
        if isinstance(step, Restart):
            await self.store.close()
            for session in self.sessions:
                self.model.end(session.session_id)
            await self.open()
        elif isinstance(step, EndSession):
            ended = self.sessions[step.session]
            ended.expire()
            self.model.end(ended.session_id)
            self.sessions[step.session] = self.store.session()
        else:
            await self._transact(self.sessions[step.session], step.operations)

    async def _transact(self, session: EmbeddedSession, operations: list[Operation]) -> None:
        expected = self.model.transact(operations, session.session_id)
        if isinstance(expected, str):
            with pytest.raises(CoordinationError) as caught:
                await session.transact(operations)
            assert type(caught.value).__name__ == expected
        else:
            assert await session.transact(operations) == expected

    async def compare(self) -> None:
        session = self.sessions[0]
        for path, expected in self.model.nodes.items():
            node = await session.get(path)
            assert node is not None, path
            found = (node.data, node.version, node.ephemeral_owner)
            assert found == (expected.data, expected.version, expected.owner), path
            assert await session.children(path) == self.model.children(path)


@settings(deadline=None)
@given(st.lists(steps, max_size=15))
def test_any_sequence_of_transactions_sessions_and_restarts_matches_the_model(
    sequence: list[Transact | EndSession | Restart],
) -> None:
    async def story(location: Path) -> None:
        stage = Stage(location)
        await stage.open()
        for step in sequence:
            await stage.take(step)
            await stage.compare()
        await stage.store.close()

    with TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder) / FILE_NAME))

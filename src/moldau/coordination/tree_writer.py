"""The writes of the `Coordination` port, over one that takes any of them together. A shell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from moldau.coordination.port import ANY_VERSION, Create, Delete, Operation, SetData
from moldau.coordination.tree import DeleteTree, EnsureParents, TreeOperation, TreeOutcome


class TreeWriter(ABC):
    """A session with a store that knows the operations of `tree`."""

    @abstractmethod
    async def submit(self, operations: Sequence[TreeOperation]) -> Sequence[TreeOutcome]:
        """All or nothing, in order, as `transact`."""

    async def transact(self, operations: Sequence[Operation]) -> Sequence[str]:
        return [outcome.path for outcome in await self.submit(operations)]

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        create = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        first = (EnsureParents(path=path),) if parents else ()
        return (await self.submit((*first, create)))[-1].path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return (await self.submit((SetData(path=path, data=data, version=version),)))[0].version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.submit((Delete(path=path, version=version),))

    async def delete_tree(self, path: str) -> None:
        await self.submit((DeleteTree(path=path),))

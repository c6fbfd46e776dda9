"""Which broker is the controller, and the fence around what it writes. A shell.

The ephemeral `/controller` is taken in one transaction with raising `/controller_epoch`. From then
on a term lasts, and every write of the controller carries a check of the epoch node's version: a
controller that was replaced, and may not know it yet, cannot change anything any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moldau.clock import Clock
from moldau.cluster import layout
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.coordination.port import (
    BadVersionError,
    Check,
    Coordination,
    Create,
    NodeExistsError,
    Operation,
    SetData,
)
from moldau.errors import NotControllerError
from moldau.model import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """The time of one controller."""

    epoch: int
    epoch_version: int  # of the node /controller_epoch; another value means that the term is over


class Controllership:
    """This broker's claim to be the controller."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        publisher: MetadataPublisher,
        broker_id: BrokerId,
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._publisher = publisher
        self._broker_id = broker_id
        self._term: Term | None = None
        coordination.on_session_end(self._end_term)

    def find_term(self) -> Term | None:
        return self._term

    def require_term(self) -> Term:
        if self._term is None:
            controller = self._publisher.image.controller_id
            raise NotControllerError(
                f"broker {self._broker_id} is not the controller; "
                + (f"broker {controller} is" if controller >= 0 else "there is none just now")
            )
        return self._term

    async def claim(self) -> Term | None:
        """Become the controller, unless another broker is; None when one is."""
        former = await self._coordination.get(layout.CONTROLLER_EPOCH)
        epoch = 1 if former is None else layout.decode_controller_epoch(former.data) + 1
        data = layout.encode_controller_epoch(epoch)
        claim = layout.encode_controller(self._broker_id, self._clock.now_ms())
        raised = (
            Create(path=layout.CONTROLLER_EPOCH, data=data)
            if former is None
            else SetData(path=layout.CONTROLLER_EPOCH, data=data, version=former.version)
        )
        taken = Create(path=layout.CONTROLLER, data=claim, ephemeral=True)
        try:
            await self._coordination.transact((taken, raised))
        except (NodeExistsError, BadVersionError):
            return None
        self._term = Term(epoch=epoch, epoch_version=0 if former is None else former.version + 1)
        self._publisher.apply_controller(self._broker_id)
        return self._term

    async def transact(self, term: Term, operations: Sequence[Operation]) -> Sequence[str]:
        """Write as the controller of this term; `NotControllerError` when the term is over."""
        fence = Check(path=layout.CONTROLLER_EPOCH, version=term.epoch_version)
        try:
            return (await self._coordination.transact((fence, *operations)))[1:]
        except BadVersionError:
            node = await self._coordination.get(layout.CONTROLLER_EPOCH)
            if node is not None and node.version == term.epoch_version:
                raise  # one of the operations was too late, not the controller
            self._end_term()
            raise NotControllerError(
                f"broker {self._broker_id} was the controller of epoch {term.epoch} and has been "
                "replaced"
            ) from None

    def _end_term(self) -> None:
        self._term = None

"""Which broker is the controller, and the fence around what it writes. A shell.

The ephemeral `/controller` is taken in one transaction with raising `/controller_epoch`. From then
on a term lasts, and every write of the controller carries a check of the epoch node's version: a
controller that was replaced, and may not know it yet, cannot change anything any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from moldau.clock import Clock
from moldau.cluster import znodes
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.coordination.port import (
    BadVersionError,
    Check,
    Coordination,
    CoordinationError,
    Create,
    NodeExistsError,
    Operation,
    SetData,
)
from moldau.errors import NotControllerError
from moldau.model import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTerm:
    """The time of one controller."""

    epoch: int
    epoch_version: int  # of the node /controller_epoch; another value means that the term is over


class ControllerElection:
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
        self.broker_id = broker_id
        self._term: ControllerTerm | None = None
        coordination.on_session_end(self.end_term)

    def find_term(self) -> ControllerTerm | None:
        return self._term

    def require_term(self) -> ControllerTerm:
        if self._term is None:
            controller = self._publisher.image.controller_id
            raise NotControllerError(
                f"broker {self.broker_id} is not the controller; "
                + (f"broker {controller} is" if controller >= 0 else "there is none just now")
            )
        return self._term

    async def claim(self) -> ControllerTerm | None:
        """Become the controller, unless another broker is; None when one is.

        A claim whose answer was lost is found by its session when it is made again.
        """
        former = await self._coordination.get(znodes.CONTROLLER_EPOCH)
        epoch = 1 if former is None else znodes.decode_controller_epoch(former.data) + 1
        data = znodes.encode_controller_epoch(epoch)
        claim = znodes.encode_controller(self.broker_id, self._clock.now_ms())
        raised = (
            Create(path=znodes.CONTROLLER_EPOCH, data=data)
            if former is None
            else SetData(path=znodes.CONTROLLER_EPOCH, data=data, version=former.version)
        )
        taken = Create(path=znodes.CONTROLLER, data=claim, ephemeral=True)
        try:
            await self._coordination.transact((taken, raised))
        except (NodeExistsError, BadVersionError):
            return await self._find_own_claim()
        return self._start_term(epoch, 0 if former is None else former.version + 1)

    async def _find_own_claim(self) -> ControllerTerm | None:
        claim, epoch = await self._coordination.get_many(
            (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH)
        )
        if claim is None or epoch is None:
            return None
        if claim.ephemeral_owner != self._coordination.session_id:
            return None
        return self._start_term(znodes.decode_controller_epoch(epoch.data), epoch.version)

    def _start_term(self, epoch: int, epoch_version: int) -> ControllerTerm:
        self._term = ControllerTerm(epoch=epoch, epoch_version=epoch_version)
        self._publisher.apply_controller(self.broker_id)
        return self._term

    async def resign(self) -> None:
        """Let another broker become the controller."""
        if self._term is None:
            return
        self._term = None
        with contextlib.suppress(CoordinationError):  # the end of the session does the same
            claim = await self._coordination.get(znodes.CONTROLLER)
            if claim is not None and claim.ephemeral_owner == self._coordination.session_id:
                await self._coordination.delete(znodes.CONTROLLER)

    async def transact(
        self, term: ControllerTerm, operations: Sequence[Operation]
    ) -> Sequence[str]:
        """Write as the controller of this term; `NotControllerError` when the term is over."""
        try:
            return await transact_in_term(self._coordination, term, operations)
        except NotControllerError:
            self.end_term()
            raise

    def end_term(self) -> None:
        """This broker is not the controller any more, or gives up being it."""
        self._term = None


async def transact_in_term(
    coordination: Coordination, term: ControllerTerm | None, operations: Sequence[Operation]
) -> Sequence[str]:
    """Write under a fence (CTL-1), or without one (None); the answer is that of the operations.

    `NotControllerError` when the term is over.
    """
    if term is None:
        return await coordination.transact(operations)
    fence = Check(path=znodes.CONTROLLER_EPOCH, version=term.epoch_version)
    try:
        return (await coordination.transact((fence, *operations)))[1:]
    except BadVersionError:
        node = await coordination.get(znodes.CONTROLLER_EPOCH)
        if node is not None and node.version == term.epoch_version:
            raise  # one of the operations was too late, not the controller
        raise NotControllerError(
            f"the controller of epoch {term.epoch} has been replaced"
        ) from None

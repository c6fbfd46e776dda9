"""What a large cluster costs: a model fitted to small simulated clusters, held against larger ones.

The brokers of the simulation are the production code over a store in memory (`moldau.testing`), all
in this process: the CPU time is that of all brokers together, the requests to the store and the
nodes written are counted where they arrive. Time in the simulation passes without CPU time, so a
failover's virtual seconds are its rounds of messages, and what computing adds comes from the CPU.

A quantity is a sum of terms (partitions, brokers times partitions, ...). Coefficients are fitted to
the smaller clusters by least squares and never negative; the larger ones are predicted before they
are measured. docs/scale.md says what follows for a hundred brokers.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from bench.processes import resident_bytes, usual_environment
from bench.report import Outcome, Table
from bench.scale import TINY, Scale
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import CreatedTopic, NewTopic
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordination.served.messages import ReadChildren, ReadNodes, ToService, Write
from moldau.errors import ClientError, TopicExistsError
from moldau.simulation.machine import PORT, SimulatedMachine, World
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess

T = TypeVar("T")

SESSION_SECONDS = 6.0
REPLICAS = 3
PARTITIONS_OF_TOPIC = 100
_IDLE_SECONDS = 10.0
_SECONDS_AT_MOST = 600.0
_OPTIONS = {
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "log.cleaner.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    brokers: int
    partitions: int

    @property
    def topics(self) -> int:
        return max(1, self.partitions // PARTITIONS_OF_TOPIC)

    @property
    def hosted(self) -> float:
        """Replicas on one broker: what a dead one leaves behind."""
        return self.partitions * REPLICAS / self.brokers


FITTED = (
    Size(brokers=3, partitions=300),
    Size(brokers=3, partitions=1_200),
    Size(brokers=6, partitions=600),
    Size(brokers=6, partitions=2_400),
    Size(brokers=12, partitions=600),
    Size(brokers=12, partitions=2_400),
)
CHECKED = (Size(brokers=20, partitions=5_000), Size(brokers=30, partitions=10_000))
WANTED = Size(brokers=100, partitions=200_000)


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the store was asked while something was done, and what it took."""

    cpu_seconds: float = 0.0
    virtual_seconds: float = 0.0
    transactions: int = 0
    written: int = 0
    read: int = 0


@dataclass(slots=True, kw_only=True)
class Measured:
    size: Size
    creation: Tally = field(default_factory=Tally)
    idle: Tally = field(default_factory=Tally)
    broker_death: Tally = field(default_factory=Tally)
    broker_return: Tally = field(default_factory=Tally)
    controller_death: Tally = field(default_factory=Tally)
    megabytes: float = 0.0


Term = Callable[[Size], float]
TERMS: Mapping[str, Term] = {
    "1": lambda size: 1.0,
    "brokers": lambda size: size.brokers,
    "brokers²": lambda size: size.brokers**2,
    "partitions": lambda size: size.partitions,
    "brokers x partitions": lambda size: size.brokers * size.partitions,
    "hosted": lambda size: size.hosted,
    "readers x hosted": lambda size: (size.brokers - 2) * size.hosted,
}
"""What costs may grow with. `hosted` are the replicas of one broker; readers are all brokers but
the dead one and the controller, who knows what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Something that is predicted: its terms are what the design says that it grows with."""

    name: str
    terms: tuple[str, ...]
    of: Callable[[Measured], float]


QUANTITIES = (
    Quantity(
        name="nodes written to make all topics",
        terms=("1", "partitions"),
        of=lambda one: one.creation.written,
    ),
    Quantity(
        name="nodes read to make all topics",
        terms=("1", "brokers x partitions"),
        of=lambda one: one.creation.read,
    ),
    Quantity(
        name="CPU s of all to make all topics",
        terms=("partitions", "brokers x partitions"),
        of=lambda one: one.creation.cpu_seconds,
    ),
    Quantity(
        name="MB of all brokers",
        terms=("brokers", "partitions", "brokers x partitions"),
        of=lambda one: one.megabytes,
    ),
    Quantity(
        name="CPU s of all in an idle second",
        terms=("brokers²", "partitions"),
        of=lambda one: one.idle.cpu_seconds / _IDLE_SECONDS,
    ),
    Quantity(
        name="a broker dies: nodes written",
        terms=("1", "hosted"),
        of=lambda one: one.broker_death.written,
    ),
    Quantity(
        name="a broker dies: transactions",
        terms=("1", "hosted"),
        of=lambda one: one.broker_death.transactions,
    ),
    Quantity(
        name="a broker dies: nodes read",
        terms=("brokers", "readers x hosted"),
        of=lambda one: one.broker_death.read,
    ),
    Quantity(
        name="a broker dies: CPU s of all",
        terms=("brokers²", "partitions"),
        of=lambda one: one.broker_death.cpu_seconds,
    ),
    Quantity(
        name="a broker comes back: nodes written",
        terms=("1", "hosted"),
        of=lambda one: one.broker_return.written,
    ),
    Quantity(
        name="a broker comes back: CPU s of all",
        terms=("brokers²", "partitions"),
        of=lambda one: one.broker_return.cpu_seconds,
    ),
    Quantity(
        name="the controller dies: nodes read",
        terms=("brokers", "readers x hosted"),
        of=lambda one: one.controller_death.read,
    ),
    Quantity(
        name="the controller dies: CPU s of all",
        terms=("brokers²", "partitions"),
        of=lambda one: one.controller_death.cpu_seconds,
    ),
)


# --- the simulation ---------------------------------------------------------------------------


class _Cluster:
    """Brokers and a store on virtual time; nothing but messages takes any."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.world = World(seed=1, session_seconds=SESSION_SECONDS)
        self.tally = Tally()
        self._count_requests()
        self.machines = {
            number: SimulatedMachine(self.world, number, _OPTIONS)
            for number in range(1, size.brokers + 1)
        }
        process = SimulatedProcess("maker", self.world.loop)
        clock = ProcessClock(self.world.loop, process, start_ms=0)
        host = self.world.network.host("maker")
        host.clock = clock
        self._admin = AsyncAdmin(
            ",".join(f"{one.host}:{PORT}" for one in self.machines.values()),
            network=host,
            clock=clock,
            random=self.world.streams.stream("maker"),
            request_timeout_ms=120_000,
            default_api_timeout_ms=600_000,
        )

    def _count_requests(self) -> None:
        service, receive = self.world.service, self.world.service.receive

        def counted(connection: object, message: ToService) -> None:
            match message:
                case ReadNodes():
                    self.tally.read += len(message.paths)
                case ReadChildren():
                    self.tally.read += 1
                case Write():
                    self.tally.transactions += 1
                    self.tally.written += len(message.operations)
            receive(connection, message)  # type: ignore[arg-type]

        service.receive = counted  # type: ignore[method-assign]

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        async def play() -> T:
            return await self.world.story.spawn(story)

        return self.world.loop.run(play())

    async def measure(self, work: Awaitable[None]) -> Tally:
        self.tally = Tally()
        began, cpu = self.world.loop.time(), time.process_time()
        await work
        self.tally.cpu_seconds += time.process_time() - cpu
        self.tally.virtual_seconds = self.world.loop.time() - began
        return self.tally

    async def start(self) -> None:
        for machine in self.machines.values():
            machine.start()
        await self.wait_until(lambda: all(len(i.brokers) == self.size.brokers for i in self.images))

    async def make_topics(self) -> None:
        for number in range(self.size.topics):
            partitions = self.size.partitions // self.size.topics
            topic = NewTopic(
                name=f"t{number}",
                partitions=partitions,
                replication_factor=REPLICAS,
                configs={"min.insync.replicas": "2"},
            )
            await self._make_topic(topic)
        await self.wait_until(self.is_whole)

    async def _make_topic(self, topic: NewTopic) -> None:
        """Ask until it is made: brokers that have just come may not listen yet."""
        while True:
            try:
                made = (await self._admin.create_topics([topic]))[topic.name]
            except ClientError:
                made = None
            if isinstance(made, CreatedTopic | TopicExistsError):
                return
            await self.world.clock.sleep(0.1)

    async def idle(self) -> None:
        await self.world.clock.sleep(_IDLE_SECONDS)

    async def kill(self, number: int) -> None:
        """Until every living broker sees every partition led by another."""
        self.machines[number].crash()
        await self.wait_until(
            lambda: all(number not in image.brokers and _is_led(image) for image in self.images)
        )

    async def bring_back(self, number: int) -> None:
        self.machines[number].start()
        await self.wait_until(self.is_whole)

    @property
    def images(self) -> list[MetadataImage]:
        """Of all brokers that serve."""
        return [
            one.broker.services.publisher.image
            for one in self.machines.values()
            if one.broker is not None
        ]

    @property
    def controller(self) -> int:
        return int(self.images[0].controller_id)

    def is_whole(self) -> bool:
        images = self.images
        return len(images) == self.size.brokers and all(map(self._is_whole, images))

    def _is_whole(self, image: MetadataImage) -> bool:
        return (
            len(image.brokers) == self.size.brokers
            and len(image.topics) == self.size.topics
            and all(
                state.leader >= 0 and len(state.isr) == len(state.replicas)
                for topic in image.topics.values()
                for state in topic.partitions
            )
        )

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Looks seldom, since looking costs too; what looking took is taken off."""
        end = self.world.loop.time() + _SECONDS_AT_MOST
        while True:
            before = time.process_time()
            found = is_so()
            self.tally.cpu_seconds -= time.process_time() - before
            if found:
                return
            if self.world.loop.time() > end:
                raise RuntimeError(f"{self.size}: the cluster does not become whole")
            await self.world.clock.sleep(0.1)


def _is_led(image: MetadataImage) -> bool:
    return all(
        state.leader in image.brokers
        for topic in image.topics.values()
        for state in topic.partitions
    )


def measure(size: Size) -> Measured:
    """In this process, which should have done nothing else: its memory counts."""
    logging.getLogger("moldau").setLevel(logging.CRITICAL)
    before = resident_bytes(os.getpid())
    cluster = _Cluster(size)
    found = Measured(size=size)

    async def story() -> None:
        await cluster.start()
        found.creation = await cluster.measure(cluster.make_topics())
        gc.collect()
        found.megabytes = (resident_bytes(os.getpid()) - before) / 1e6
        found.idle = await cluster.measure(cluster.idle())
        other = next(number for number in cluster.machines if number != cluster.controller)
        found.broker_death = await cluster.measure(cluster.kill(other))
        found.broker_return = await cluster.measure(cluster.bring_back(other))
        found.controller_death = await cluster.measure(cluster.kill(cluster.controller))

    cluster.run(story())
    return found


def measure_elsewhere(size: Size) -> Measured:
    """In a process of its own."""
    command = (sys.executable, "-m", __name__, str(size.brokers), str(size.partitions))
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=usual_environment()
    )
    found = json.loads(done.stdout)
    del found["size"]
    tallies = {name: Tally(**one) for name, one in found.items() if isinstance(one, dict)}
    return Measured(size=size, megabytes=found["megabytes"], **tallies)


# --- the fit ----------------------------------------------------------------------------------


def fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Coefficients that are not negative, by relative least squares: small clusters count too.

    Terms that would become negative are left out, one after the other.
    """
    import numpy

    used = list(range(len(rows[0])))
    while used:
        weights = numpy.array([1 / max(abs(value), 1e-9) for value in values])
        matrix = numpy.array([[row[place] for place in used] for row in rows]) * weights[:, None]
        found, *_ = numpy.linalg.lstsq(matrix, numpy.array(values) * weights, rcond=None)
        if (found >= 0).all():
            kept = dict(zip(used, map(float, found), strict=True))
            return [kept.get(place, 0.0) for place in range(len(rows[0]))]
        del used[int(found.argmin())]
    return [0.0] * len(rows[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    quantity: Quantity
    coefficients: tuple[float, ...]

    @classmethod
    def to(cls, quantity: Quantity, measured: Sequence[Measured]) -> Fitted:
        rows = [[TERMS[term](one.size) for term in quantity.terms] for one in measured]
        found = fit(rows, [quantity.of(one) for one in measured])
        return cls(quantity=quantity, coefficients=tuple(found))

    def predict(self, size: Size) -> float:
        terms = (TERMS[term](size) for term in self.quantity.terms)
        return sum(factor * term for factor, term in zip(self.coefficients, terms, strict=True))

    @property
    def formula(self) -> str:
        parts = zip(self.coefficients, self.quantity.terms, strict=True)
        return " + ".join(
            f"{factor:.3g}" if term == "1" else f"{factor:.3g} x {term}"
            for factor, term in parts
            if factor
        )


def run(scale: Scale) -> Outcome:
    if scale is TINY:
        fitted_sizes: Sequence[Size] = (
            Size(brokers=3, partitions=30),
            Size(brokers=3, partitions=60),
            Size(brokers=5, partitions=60),
        )
        checked_sizes: Sequence[Size] = (Size(brokers=5, partitions=120),)
    else:
        fitted_sizes, checked_sizes = FITTED, CHECKED
    measured = [_measure_aloud(size) for size in fitted_sizes]
    fits = [Fitted.to(quantity, measured) for quantity in QUANTITIES]
    checked = [_measure_aloud(size) for size in checked_sizes]
    return Outcome(tables=[_table_of_fits(fits, measured), _table_of_checks(fits, checked)])


def _measure_aloud(size: Size) -> Measured:
    before = time.perf_counter()
    found = measure_elsewhere(size)
    seconds = time.perf_counter() - before
    print(
        f"  {size.brokers} brokers, {size.partitions} partitions: {seconds:.0f} s", file=sys.stderr
    )
    return found


def _table_of_fits(fits: Sequence[Fitted], measured: Sequence[Measured]) -> Table:
    sizes = ", ".join(f"{one.size.brokers}/{one.size.partitions}" for one in measured)
    table = Table(
        title=f"Fitted to simulated clusters of {sizes} (brokers/partitions, 3 replicas)",
        columns=("quantity", "formula", "off by at most %"),
        note="hosted: the replicas of one broker, 3 x partitions / brokers.",
    )
    for one in fits:
        pairs = [(one.predict(each.size), one.quantity.of(each)) for each in measured]
        off = max(abs(guess - value) / max(abs(value), 1e-9) for guess, value in pairs)
        table.add(one.quantity.name, one.formula, off * 100)
    return table


def _table_of_checks(fits: Sequence[Fitted], checked: Sequence[Measured]) -> Table:
    columns = ["quantity"]
    for one in checked:
        name = f"{one.size.brokers}/{one.size.partitions}"
        columns += [f"{name} predicted", f"{name} measured", "ratio"]
    columns.append(f"{WANTED.brokers}/{WANTED.partitions} predicted")
    table = Table(
        title="Predicted, and then measured",
        columns=columns,
        note="CPU and memory are those of all brokers together, in one process.",
    )
    for one in fits:
        cells: list[str | float] = [one.quantity.name]
        for each in checked:
            guess, value = one.predict(each.size), one.quantity.of(each)
            cells += [guess, value, value / guess if guess else 0.0]
        table.add(*cells, one.predict(WANTED))
    return table


def main() -> None:
    size = Size(brokers=int(sys.argv[1]), partitions=int(sys.argv[2]))
    print(json.dumps(asdict(measure(size))), flush=True)
    os._exit(0)  # what was under way in the simulation stays where it is


if __name__ == "__main__":
    main()

"""`make demo`: a broker, a stream of clicks, a derived feed and an offline load, side by side.

The two pipelines are the files beside this one, run in a temporary folder that is gone at the end.
Takes about a minute, most of which is Spark's starting.
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from moldau import Producer, read_table
from moldau.errors import MoldauError
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.rules.queries import BatchReport
from moldau.spark.pipeline.run import RunOptions, open_session, run_pipeline
from moldau.spark.pipeline.status import RunReport
from moldau.spark.session_factory import stop_quietly
from moldau.testing import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline.model import Pipeline, Sink

CLICK_COUNT = 20_000
_PER_SEND = 500
_SEND_SECONDS = 10.0
_LONGEST_SECONDS = 600.0  # a busy machine takes its time over Spark's first batches
_UNREADABLE_EVERY = 4_000
_MASTER = "local[2]"

_HERE = Path(__file__).parent
_FILES = ("clicks_per_minute.toml", "clicks_to_lake.toml", "click_shapes.py")

_PAGES = ("/", "/shop/shoes", "/shop/hats", "/cart", "/checkout", "/help", "/blog/rivers")
_WEIGHTS = (40, 20, 12, 10, 5, 8, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the stream of clicks was made of."""

    clicks: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0


def main() -> None:
    """Run the demonstration; exits with 1 at its first failure, and says what that was."""
    try:
        with tempfile.TemporaryDirectory(prefix="moldau-demo-") as folder, broker() as running:
            _Demo(Path(folder), running.bootstrap).run()
    except MoldauError as failure:
        sys.stderr.write(f"make demo: {failure}\n")
        sys.exit(1)


class DemoFailedError(MoldauError):
    """The demonstration did not show what it was to show."""


class _Demo:
    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._deadline = time.monotonic() + _LONGEST_SECONDS

    def run(self) -> None:
        _say(f"a broker serves on {self._bootstrap}")
        for name in _FILES:
            shutil.copy(_HERE / name, self._folder)
        feed, load = (load_pipeline(self._folder / name) for name in _FILES[:2])
        load = dataclasses.replace(load, sinks=tuple(_hasten(sink) for sink in load.sinks))
        with _session(feed, self._bootstrap) as spark:
            _say("Spark is here; clicks begin to stream, and two pipelines to read them")
            clicks = _Clicks(self._bootstrap)
            pipelines = [_Running(one, self._bootstrap, spark) for one in (feed, load)]
            parts: list[_Part] = [clicks, *pipelines]
            for part in parts:
                part.start()
            try:
                self._wait_until(lambda: not clicks.is_alive(), parts)
                _say(f"{sum(clicks.sent.clicks.values()):,} clicks have been sent")
                self._wait_until(lambda: all(map(_Running.has_read_all, pipelines)), parts)
            finally:
                for part in parts:
                    part.stop.set()
                for part in parts:
                    part.join()
        self._tell(clicks.sent)

    def _wait_until(self, is_done: Callable[[], bool], parts: list[_Part]) -> None:
        """Raises DemoFailedError as soon as some part of it all has failed."""
        while not is_done():
            for part in parts:
                if part.failure is not None:
                    raise DemoFailedError(f"{part.name}: {part.failure}")
            if time.monotonic() > self._deadline:
                raise DemoFailedError(
                    f"not everything has arrived within {_LONGEST_SECONDS:.0f} seconds"
                )
            time.sleep(0.2)

    def _tell(self, sent: Sent) -> None:
        """Print what arrived where; raises DemoFailedError unless it is what was sent."""
        import pyarrow.parquet as pq

        counts: dict[tuple[str, str], int] = {}
        for value in self._read("clicks-per-minute"):
            row = json.loads(value)
            counts[row["minute"], row["page"]] = int(row["clicks"])
        per_page = Counter[str]()
        for (_, page), clicks in counts.items():
            per_page[page] += clicks
        lake = pq.read_table(self._folder / "lake/clicks", columns=["page"])
        loaded = Counter[str](lake["page"].to_pylist())
        unreadable = len(self._read("clicks-not-counted"))
        files = sorted((self._folder / "lake/clicks").glob("date=*/hour=*/*.parquet"))
        _say("")
        _say(f"  {'page':<16}{'sent':>8}{'feed':>8}{'lake':>8}")
        for page in _PAGES:
            _say(f"  {page:<16}{sent.clicks[page]:>8}{per_page[page]:>8}{loaded[page]:>8}")
        _say(f"  {'unreadable':<16}{sent.unreadable:>8}{unreadable:>8}   (dead letters)")
        _say("")
        _say(f"  {len(counts)} counts by minute and page, {len(files)} files in the lake, such as")
        if files:
            _say(f"  {files[0].relative_to(self._folder)}")
        if not per_page == sent.clicks == loaded or unreadable != sent.unreadable:
            raise DemoFailedError("what has arrived is not what was sent")
        _say("everything has arrived")

    def _read(self, topic: str) -> list[bytes]:
        table = read_table(topic, bootstrap=self._bootstrap, columns=["value"])
        values: list[bytes] = table["value"].to_pylist()
        return values


def _hasten(sink: Sink) -> Sink:
    """A demonstration does not wait a minute for the first files."""
    return dataclasses.replace(sink, trigger="2 seconds")


class _Part(threading.Thread):
    """Something that goes on by itself; what it fails with is told by the thread that waits."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: Exception | None = None
        self.stop = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as failure:  # noqa: BLE001 see above
            self.failure = failure

    def work(self) -> None:
        raise NotImplementedError


class _Clicks(_Part):
    """Sends clicks of visitors that come and go, some of them unreadable."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("clicks")
        self._brokers = bootstrap
        self.sent = Sent()

    def work(self) -> None:
        chance = random.Random(1)  # noqa: S311 a demonstration shows the same every time
        clicks, unreadable = Counter[str](), 0
        pause = _SEND_SECONDS * _PER_SEND / CLICK_COUNT
        with Producer(self._brokers) as producer:
            for first in range(0, CLICK_COUNT, _PER_SEND):
                values = []
                for number in range(first, first + _PER_SEND):
                    if number % _UNREADABLE_EVERY == 0:
                        values.append(b"<click/>")
                        unreadable += 1
                        continue
                    page = chance.choices(_PAGES, _WEIGHTS)[0]
                    clicks[page] += 1
                    values.append(_click(chance, page, number))
                producer.send_many("clicks", values).result()
                if self.stop.wait(pause):
                    return
        self.sent = Sent(clicks=clicks, unreadable=unreadable)


def _click(chance: random.Random, page: str, number: int) -> bytes:
    at = datetime.now(UTC) + timedelta(milliseconds=number % 1000)
    return json.dumps(
        {
            "user": f"visitor-{int(chance.expovariate(1 / 300))}",
            "page": page,
            "at": at.isoformat(),
            "milliseconds": int(chance.lognormvariate(5, 1)),
        }
    ).encode()


class _Running(_Part):
    """One pipeline, in a thread of its own."""

    def __init__(self, pipeline: Pipeline, bootstrap: str, spark: SparkSession) -> None:
        super().__init__(pipeline.name)
        self._pipeline = pipeline
        self._options = RunOptions(bootstrap=bootstrap, master=_MASTER, once=False)
        self._spark = spark
        self._report: RunReport | None = None

    def work(self) -> None:
        run_pipeline(self._pipeline, self._options, stop=self.stop, watcher=self, spark=self._spark)

    def has_read_all(self) -> bool:
        """Whether every query of the pipeline has seen all clicks."""
        report = self._report
        return report is not None and all(one.input_rows >= CLICK_COUNT for one in report.queries)

    def on_report(self, report: RunReport) -> None:
        self._report = report

    def on_batch(self, query: str, batch: BatchReport) -> None:
        """The totals are enough."""

    def say(self, text: str) -> None:
        _say(f"{self.name}: {text}")


@contextmanager
def _session(pipeline: Pipeline, bootstrap: str) -> Iterator[SparkSession]:
    log_file = Path(pipeline.folder) / "spark.log"
    options = RunOptions(bootstrap=bootstrap, master=_MASTER, once=False, log_file=log_file)
    spark = open_session(pipeline, options)
    try:
        yield spark
    finally:
        stop_quietly(spark)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""What operators rely on: figures, findings, explanations, plans, moves between disks."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_METRICS = "unit/metrics"
_CONSUME = "moldau.cli.consume"

MUTANTS = (
    # Figures
    Mutant(
        name="every-topic-has-figures-of-its-own",
        rule="metrics",
        breaks="a scrape grows with the number of topics, without a bound",
        edits=(
            Edit(
                "moldau.metrics.figures",
                "TopicTraffics.of",
                "len(self._by_topic) >= self._most_topics",
                "len(self._by_topic) < 0",
            ),
        ),
        tests=(f"{_METRICS}/test_topic_traffic.py",),
    ),
    Mutant(
        name="untimed-requests-are-not-counted",
        rule="metrics",
        breaks="the request that is timed stands for itself alone",
        edits=(Edit("moldau.metrics.figures", "ApiFigures.note_timed", "self._span"),),
        tests=(f"{_METRICS}/test_request_figures.py",),
    ),
    Mutant(
        name="lag-counts-a-quiet-time",
        rule="metrics",
        breaks="seconds of lag begin before the record that is not read",
        edits=(
            Edit(
                "moldau.broker.monitoring.group_lag",
                "seconds_behind",
                "former.at + share * (sample.at - former.at)",
                "former.at",
            ),
        ),
        tests=("unit/broker/monitoring/test_lag_samples.py",),
    ),
    Mutant(
        name="clients-push-whenever-they-like",
        rule="metrics",
        breaks="a client that comes too early is not sent away",
        edits=(
            Edit(
                "moldau.broker.monitoring.client_telemetry",
                "_is_early",
                "now - last_at < instance.requested.interval_ms / 1000",
                "False",
            ),
        ),
        tests=("unit/broker/monitoring/test_client_telemetry.py",),
    ),
    Mutant(
        name="a-scrape-holds-the-loop",
        rule="metrics",
        breaks="all figures of all topics are written out in one turn",
        edits=(
            Edit("moldau.broker.monitoring.collector", "_Turns.spend", "self._left -= samples"),
        ),
        tests=("unit/broker/test_metrics_collector.py",),
    ),
    # Moves between log directories
    # Commands
    Mutant(
        name="consume-prints-aborted-records",
        rule="consume",
        breaks="a copy of a topic has records of aborted transactions",
        edits=(Edit(_CONSUME, "_choose_isolation", "'read_committed'", "'read_uncommitted'"),),
        tests=("system/test_cli.py::test_a_copy_by_json_has_no_aborted_records",),
    ),
)

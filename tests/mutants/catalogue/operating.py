"""What operators rely on: figures, findings, explanations, plans, moves between disks."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_METRICS = "unit/metrics"
_DIAGNOSIS = "unit/diagnosis/rules"
_MOVES = "moldau.storage.rules.log_move"
_PLAN = "moldau.client.rules.rebalance_plan"
_PARTITIONS = "moldau.diagnosis.rules.partition_checks"
_BROKERS = "moldau.diagnosis.rules.broker_checks"
_RECORD = "moldau.diagnosis.rules.record_story"
_CONSUME = "moldau.cli.consume"

MUTANTS = (
    # Figures
    Mutant(
        name="every-topic-has-figures-of-its-own",
        rule="metrics",
        breaks="a scrape grows with the number of topics, without a bound",
        edits=(
            Edit(
                "moldau.metrics.topic_traffic",
                "if len(self._by_topic) >= self._most_topics:",
                "if len(self._by_topic) < 0:",
            ),
        ),
        tests=(f"{_METRICS}/test_topic_traffic.py",),
    ),
    Mutant(
        name="untimed-requests-are-not-counted",
        rule="metrics",
        breaks="the request that is timed stands for itself alone",
        edits=(
            Edit(
                "moldau.metrics.request_figures",
                "self._durations.note(seconds, self._span)",
                "self._durations.note(seconds)",
            ),
        ),
        tests=(f"{_METRICS}/test_request_figures.py",),
    ),
    Mutant(
        name="lag-counts-a-quiet-time",
        rule="metrics",
        breaks="seconds of lag begin before the record that is not read",
        edits=(
            Edit(
                "moldau.metrics.lag_samples",
                "came_at = former.at + share * (sample.at - former.at)",
                "came_at = former.at",
            ),
        ),
        tests=(f"{_METRICS}/test_lag_samples.py",),
    ),
    Mutant(
        name="clients-push-whenever-they-like",
        rule="metrics",
        breaks="a client that comes too early is not sent away",
        edits=(
            Edit(
                "moldau.broker.monitoring.client_telemetry",
                "return now - last_at < instance.requested.interval_ms / 1000",
                "return False",
            ),
        ),
        tests=("unit/broker/monitoring/test_client_telemetry.py",),
    ),
    Mutant(
        name="a-scrape-holds-the-loop",
        rule="metrics",
        breaks="all figures of all topics are written out in one turn",
        edits=(
            Edit(
                "moldau.broker.monitoring.collector",
                "        self._left -= samples\n",
                "",
            ),
        ),
        tests=("unit/broker/test_metrics_collector.py",),
    ),
    # Findings
    Mutant(
        name="doctor-takes-a-leaderless-partition-for-well",
        rule="doctor",
        breaks="partitions that nobody can read are not found",
        edits=(
            Edit(
                _PARTITIONS,
                "        if partition.leader_id == NO_BROKER:\n            offline",
                "        if partition.leader_id < NO_BROKER:\n            offline",
            ),
        ),
        tests=(f"{_DIAGNOSIS}/test_doctor_checks.py",),
    ),
    Mutant(
        name="doctor-does-not-know-min-isr",
        rule="doctor",
        breaks="that producers with acks=all are refused is taken for a missing copy",
        edits=(
            Edit(
                _PARTITIONS,
                "elif in_sync < _min_in_sync(topic.name, survey, len(partition.replicas)):",
                "elif in_sync < 1:",
            ),
        ),
        tests=(f"{_DIAGNOSIS}/test_doctor_checks.py",),
    ),
    Mutant(
        name="doctor-finds-full-disks-too-late",
        rule="doctor",
        breaks="a disk that is nearly full is no finding",
        edits=(Edit(_BROKERS, "    if free >= _NEARLY_FULL:", "    if free >= _FULL:"),),
        tests=(f"{_DIAGNOSIS}/test_doctor_checks.py",),
    ),
    Mutant(
        name="doctor-takes-clocks-behind-for-right",
        rule="doctor",
        breaks="only a clock that is ahead is found",
        edits=(
            Edit(
                _BROKERS,
                "if ahead is None or abs(ahead) < _SKEW_SECONDS:",
                "if ahead is None or ahead < _SKEW_SECONDS:",
            ),
        ),
        tests=(f"{_DIAGNOSIS}/test_doctor_checks.py",),
    ),
    # Explanations
    Mutant(
        name="explain-takes-what-is-not-committed-for-written",
        rule="explain",
        breaks="a record that no reader gets yet is said to be here",
        edits=(
            Edit(
                _RECORD,
                "    if offset >= facts.high_watermark:",
                "    if offset > facts.log_end:",
            ),
        ),
        tests=(f"{_DIAGNOSIS}/test_stories.py",),
    ),
    Mutant(
        name="explain-takes-deleted-for-compacted",
        rule="explain",
        breaks="what retention took is said to have been replaced by a later record",
        edits=(Edit(_RECORD, "    if offset < facts.log_start:", "    if offset < 0:"),),
        tests=(f"{_DIAGNOSIS}/test_stories.py",),
    ),
    # Plans
    Mutant(
        name="rebalance-gives-up-racks",
        rule="rebalance",
        breaks="replicas of a partition come into one rack for the sake of load",
        edits=(Edit(_PLAN, "return len(after) >= len(before)", "return True"),),
        tests=("unit/client/rules/test_rebalance_plan.py",),
    ),
    Mutant(
        name="rebalance-never-looks-again",
        rule="rebalance",
        breaks="a broker that has become lighter is not considered any more",
        edits=(Edit(_PLAN, "            targets.discard(target)\n", "            pass\n"),),
        tests=("unit/client/rules/test_rebalance_plan.py",),
    ),
    # Moves between log directories
    Mutant(
        name="copy-takes-the-place-before-it-is-whole",
        rule="MOV-1",
        breaks="a copy that lacks batches becomes the log",
        edits=(Edit(_MOVES, "        and copy.end_offset == log.end_offset\n", ""),),
        tests=("unit/storage/rules/test_log_move.py",),
    ),
    Mutant(
        name="copy-takes-the-place-before-it-is-flushed",
        rule="MOV-2",
        breaks="a power loss after a move takes what was flushed before it",
        edits=(Edit(_MOVES, "        and copy.recovery_point >= log.recovery_point\n", ""),),
        tests=("unit/storage/rules/test_log_move.py",),
    ),
    Mutant(
        name="copy-goes-on-behind-compaction",
        rule="MOV-1",
        breaks="a copy brings back a value whose deletion was compacted away",
        edits=(Edit(_MOVES, "        and note.cleaned_offset == cleaned_offset\n", ""),),
        tests=("unit/storage/rules/test_log_move.py",),
    ),
    # Commands
    Mutant(
        name="consume-prints-aborted-records",
        rule="consume",
        breaks="a copy of a topic has records of aborted transactions",
        edits=(Edit(_CONSUME, 'or "read_committed"', 'or "read_uncommitted"'),),
        tests=("system/test_cli.py::test_a_copy_by_json_has_no_aborted_records",),
    ),
)

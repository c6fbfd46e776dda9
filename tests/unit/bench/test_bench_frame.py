"""The frame of the benchmarks: answers are counted rightly, a bound is kept, pages are written."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET

import pytest
from bench.chart import draw
from bench.compare import QUICK, Effort, Found, choose, estimate_seconds, run_rows
from bench.loads import RATE
from bench.report import FIGURES_BEGIN, FIGURES_END, advantage, render_found, write_page
from bench.rows import ROWS
from bench.scale_model import SESSION_SECONDS, Fitted, Measured, Quantity, Size, measure_elsewhere
from bench.systems import SYSTEMS
from bench.wires import KafkaWire, NatsWire, RedisWire, RefusedError

ROW = next(row for row in ROWS if row.name == "requests/one-at-a-time")
ANSWER = b"\0\0\0\x28" + bytes(40)


def scan(request, data: bytes):
    return request.scan(bytearray(data + bytes(64)), len(data))


def test_answers_of_a_broker_are_counted_when_they_are_whole():
    request = KafkaWire().append("t", 100)
    assert scan(request, b"") == (0, 0)
    assert scan(request, ANSWER[:-1]) == (0, 0)
    assert scan(request, ANSWER * 2 + ANSWER[:5]) == (2, 2 * len(ANSWER))


def test_an_error_of_a_broker_is_not_counted_but_raised():
    request = KafkaWire().append("t", 100)
    refused = bytearray(ANSWER)
    refused[4 + 4 + 1 + 1 + 1 + 1 + 1 + 4 + 1] = 6
    with pytest.raises(RefusedError, match="error 6"):
        scan(request, bytes(refused))


def test_entries_of_redis_are_counted_by_two_lines():
    request = RedisWire().append("t", 100)
    answer = b"$15\r\n1700000000000-0\r\n"
    assert scan(request, answer * 3) == (3, 3 * len(answer))
    assert scan(request, answer + answer[:-1]) == (1, len(answer))
    assert scan(request, answer + answer[:5]) == (1, len(answer))
    assert scan(request, answer[:5]) == (0, 0)
    with pytest.raises(RefusedError):
        scan(request, b"-ERR no\r\n")


def test_acknowledgements_of_nats_are_counted_by_their_sequence_numbers():
    request = NatsWire().append("t", 100)
    answer = b'MSG _INBOX.bench00000001 1 26\r\n{"stream":"t", "seq":17}\r\n'
    assert scan(request, answer * 2 + answer[:40]) == (2, 2 * len(answer) + 31)
    with pytest.raises(RefusedError):
        scan(request, b'MSG i 1 9\r\n{"error":{"code":503}}\r\n')


def found(ours: float, theirs: float) -> Found:
    samples = {"moldau": [(ours, 10.0), (ours, 10.0)], "kafka": [(theirs, 20.0)]}
    return Found(row=ROW, samples=samples, failures={"redis": "it died"})


def test_more_than_one_is_ahead_whichever_way_a_figure_goes():
    assert ROW.figures == RATE  # more requests are better, less CPU is
    assert advantage(found(200.0, 100.0), 0) == 2.0
    assert advantage(found(200.0, 100.0), 1) == 2.0
    assert advantage(found(200.0, 100.0), 0, "nats") is None


def test_rows_of_an_earlier_run_are_shown_again():
    once = found(200.0, 100.0)
    again = Found.read_json(json.loads(json.dumps(once.as_json())))
    assert again is not None
    assert render_found([again], []) == render_found([once], [])
    assert Found.read_json({"row": "no such row"}) is None


def test_failures_and_what_was_left_out_are_in_the_table():
    text = render_found([found(200.0, 100.0)], ["nats: not here"])
    assert "200 ±0 %" in text
    assert "2.00 times" in text
    assert "requests/one-at-a-time, redis: it died" in text
    assert "nats: not here" in text


def test_a_page_keeps_what_people_wrote(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{FIGURES_BEGIN}\nformer figures\n{FIGURES_END}\n\nafter\n")
    for _ in range(2):
        write_page(page, [found(200.0, 100.0)], [], tmp_path / "page.svg", {"cores": 2})
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "former figures" not in text
    assert text.count("produce 100 B, one at a time") == 1


def test_the_chart_is_whole_xml_and_marks_losses():
    root = ET.fromstring(draw([found(100.0, 200.0)]))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert ROW.title in texts
    assert "0.50" in texts


@pytest.mark.parametrize("minutes", [5, 20, 45])
def test_rows_are_chosen_by_weight_until_the_time_is_over(minutes):
    systems = {row.name: row.systems for row in ROWS}
    rows, effort = choose(ROWS, systems, minutes)
    assert sum(estimate_seconds(row, row.systems, effort) for row in rows) <= minutes * 60
    left_out = [row.weight for row in ROWS if row not in rows]
    assert not left_out or min(row.weight for row in rows) >= min(left_out)
    assert choose(ROWS, systems, None)[0] == list(ROWS)


def test_every_row_has_a_name_of_its_own_and_systems_that_exist():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(name in SYSTEMS for row in ROWS for name in row.systems)
    assert all(row.systems[0].startswith("moldau") for row in ROWS)


def test_a_row_that_fails_for_one_system_goes_on_with_the_others():
    def load(site):
        if site.system.name == "plain":
            raise RuntimeError("no such thing")
        return ROW.load(site)

    row = dataclasses.replace(ROW, load=load, systems=("moldau", "plain"))
    (one,) = run_rows([row], {row.name: row.systems}, QUICK, lambda line: None)
    assert one.failures == {"plain": "RuntimeError: no such thing"}
    assert len(one.samples["moldau"]) == 1
    assert one.samples["moldau"][0][0] > 0


def test_repetitions_of_a_row_are_what_its_estimate_counts():
    effort = Effort(seconds=1.0, repetitions=5, warm_seconds=0.0)
    short = dataclasses.replace(ROW, repetitions=1)
    assert estimate_seconds(short, ["moldau"], effort) < estimate_seconds(ROW, ["moldau"], effort)


def test_a_fit_finds_costs_that_are_not_negative():
    sizes = [Size(brokers=brokers, partitions=count) for brokers in (3, 6) for count in (300, 900)]
    quantity = Quantity(
        name="it", terms=("1", "partitions", "hosted"), of=lambda one: one.megabytes
    )
    measured = [Measured(size=size, megabytes=5 + 0.5 * size.partitions) for size in sizes]
    fitted = Fitted.to(quantity, measured)
    assert fitted.predict(Size(brokers=30, partitions=10_000)) == pytest.approx(5_005)
    assert min(fitted.coefficients) >= 0
    falling = [Measured(size=size, megabytes=1e6 - size.partitions) for size in sizes]
    assert min(Fitted.to(quantity, falling).coefficients) >= 0


def test_a_simulated_cluster_is_counted_where_its_requests_arrive():
    found = measure_elsewhere(Size(brokers=3, partitions=30))
    assert found.broker_death.written >= 30  # a state each
    assert found.broker_death.virtual_seconds < SESSION_SECONDS + 5
    assert found.creation.read >= 30
    assert found.idle.written == 0

"""A produce that comes late does not leak into the next transaction (KIP-890).

A proxy keeps a request of one connection back while others overtake it over another connection.
What happens where nobody verifies is in `test_hanging_transactions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.errors import ErrorCode
from support.broker_process import BrokerProcess
from support.late_requests import LateProducer, code_of, held_back, late_producer
from support.waiting import eventually


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[LateProducer]:
    broker.start()
    with late_producer(broker) as made:
        yield made


@pytest.mark.parametrize("overtaken_by_data", [False, True])
def test_a_late_produce_does_not_join_the_next_transaction(
    producer: LateProducer, overtaken_by_data: bool
) -> None:
    request = producer.produce_request(b"late", 12)
    assert producer.produce(b"first", 12) is ErrorCode.none
    with held_back(producer, producer.produce_request(b"late", 12, sequence=1)) as (proxy, late):
        producer.end(5, commit=False)
        # Before the end marker it would still be a part of the transaction, and aborted with it.
        eventually(lambda: producer.read()[2] == 2, "the end marker")
        if overtaken_by_data:
            assert producer.produce(b"next", 12) is ErrorCode.none
        proxy.go.set()
        code = code_of(late.receive_response(type(request), 1))
        assert code in (ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state)
        if not overtaken_by_data:
            assert producer.produce(b"next", 12) is ErrorCode.none
        producer.end(5, commit=True)
    eventually(lambda: producer.read()[1] == producer.read()[2], "all transactions decided")
    values, stable, end = producer.read()
    assert (values, stable, end) == ([b"next"], 4, 4)


def test_a_late_produce_does_not_begin_a_transaction_that_nobody_ends(
    producer: LateProducer,
) -> None:
    request = producer.produce_request(b"late", 9)
    producer.add_partition()
    with held_back(producer, request) as (proxy, late):
        producer.end(3, commit=False)
        eventually(lambda: producer.read()[2] == 1, "the end marker")
        proxy.go.set()
        code = code_of(late.receive_response(type(request), 1))
        assert code in (ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_epoch)
    values, stable, end = producer.read()
    assert (values, stable) == ([], end)

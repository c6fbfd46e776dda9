"""Two-phase commit with our client: one process prepares, another one decides (KIP-939)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

import moldau
import moldau.errors
import moldau.testing
from moldau.cli.main import run
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return Topics(bootstrap).create()


def prepare(bootstrap: str, topic: str, value: bytes, name: str) -> moldau.PreparedTransaction:
    """As a process that is gone afterwards."""
    with moldau.Producer(
        bootstrap, transactional_id=name, transaction_two_phase_commit_enable=True
    ) as producer:
        with producer.transaction():
            producer.send(topic, value)
            prepared = producer.prepare_transaction()
        assert prepared is not None
        return prepared


def committed(bootstrap: str, topic: str) -> list[bytes]:
    table = moldau.read_table(topic, bootstrap=bootstrap, read_committed=True)
    return sorted(table["value"].to_pylist())


@pytest.mark.parametrize("commit", [True, False])
def test_another_process_decides_over_what_was_prepared(
    bootstrap: str, topic: str, commit: bool
) -> None:
    prepared = prepare(bootstrap, topic, b"a", fresh_name())
    assert committed(bootstrap, topic) == []
    with moldau.Admin(bootstrap) as admin:
        name = prepared.transactional_id
        for _ in range(2):  # the same decision again is none
            assert admin.complete_transactions([prepared], commit=commit) == {name: None}
        refused = admin.complete_transactions([prepared], commit=not commit)[name]
        assert isinstance(refused, moldau.errors.InvalidTxnStateError)
    prepare(bootstrap, topic, b"next", name)  # it began, so that the first one is complete
    with moldau.Admin(bootstrap) as admin:
        late = admin.complete_transactions([prepared], commit=commit)[name]
        assert isinstance(late, moldau.errors.ProducerFencedError)
    assert committed(bootstrap, topic) == ([b"a"] if commit else [])


def test_many_are_completed_at_once_and_none_is_left_open(bootstrap: str, topic: str) -> None:
    prepared = [prepare(bootstrap, topic, b"%d" % one, fresh_name()) for one in range(5)]
    with moldau.Admin(bootstrap) as admin:
        answers = admin.complete_transactions(prepared, commit=True)
    assert answers == {one.transactional_id: None for one in prepared}
    eventually(
        lambda: committed(bootstrap, topic) == [b"%d" % one for one in range(5)],
        "all is seen",
        PATIENCE_SECONDS,
    )


def test_who_has_prepared_may_commit_itself_and_go_on(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        async with moldau.AsyncProducer(
            bootstrap, transactional_id=fresh_name(), transaction_two_phase_commit_enable=True
        ) as producer:
            for value in (b"1", b"2"):
                await producer.begin_transaction()
                await producer.send(topic, value)
                assert await producer.prepare_transaction() is not None
                await producer.commit_transaction()
            await producer.begin_transaction()
            assert await producer.prepare_transaction() is None  # nothing was sent
            async with producer.transaction():
                await producer.send(topic, b"3")

    asyncio.run(story())
    eventually(
        lambda: committed(bootstrap, topic) == [b"1", b"2", b"3"], "all is seen", PATIENCE_SECONDS
    )


def test_brokers_that_do_not_allow_it_say_which_option_does() -> None:
    with (
        moldau.testing.broker() as broker,
        moldau.Producer(
            broker.bootstrap, transactional_id="x", transaction_two_phase_commit_enable=True
        ) as producer,
        pytest.raises(
            moldau.errors.TransactionalIdAuthorizationError,
            match=r"set transaction\.two\.phase\.commit\.enable=true on every broker",
        ),
    ):
        producer.begin_transaction()


def test_a_producer_of_one_phase_prepares_nothing(bootstrap: str, topic: str) -> None:
    with moldau.Producer(bootstrap, transactional_id=fresh_name()) as producer:
        producer.begin_transaction()
        with pytest.raises(
            moldau.errors.TransactionStateError, match="transaction_two_phase_commit_enable"
        ):
            producer.prepare_transaction()
    with pytest.raises(moldau.errors.ConfigurationError, match=r"needs a transactional\.id"):
        moldau.Producer(bootstrap, transaction_two_phase_commit_enable=True)


def test_the_command_aborts_what_nobody_will_complete(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = prepare(bootstrap, topic, b"left", fresh_name()).transactional_id
    abort = ["transactions", "abort", name, "--bootstrap", bootstrap]
    assert run([*abort, "--topic", topic]) == 2
    assert run([*abort, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"] == [f"{topic}-0"]
    with moldau.Producer(bootstrap) as producer:
        producer.send(topic, b"next").result()
    eventually(lambda: committed(bootstrap, topic) == [b"next"], "readers go on")
    assert run(abort) == 1
    assert "has no open transaction: it is Complete" in capsys.readouterr().err

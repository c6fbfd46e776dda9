"""Spark and pipelines with brokers that want to know who it is: SASL_SSL all the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau
from moldau.cli.main import run as run_command
from moldau.spark import worker
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.run import RunOptions, run_pipeline
from moldau.spark.worker import close_clients
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
from support.pipelines import Watching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 20


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with secured_broker({"offsets.topic.num.partitions": "1"}) as broker:
        yield broker
        worker.close_producers()
        close_clients()


def spark_options(broker: SecuredBroker, user: str = "alice") -> dict[str, str]:
    secured = {f"kafka.{name}": value for name, value in broker.client_options(user).items()}
    return {"kafka.bootstrap.servers": broker.bootstrap, **secured}


def send(broker: SecuredBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap, **broker.client_options("alice")) as producer:
        values = [json.dumps({"user": f"u{number}"}).encode() for number in range(COUNT)]
        producer.send_many(topic, values).result()


def test_frames_are_written_and_read_over_sasl_ssl(
    spark: SparkSession, secured: SecuredBroker
) -> None:
    options = spark_options(secured)
    frame = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("moldau").options(**options, topic="frames").mode("append").save()
    read = spark.read.format("moldau").options(**options, subscribe="frames").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(COUNT))


def test_a_wrong_password_is_told(spark: SparkSession, secured: SecuredBroker) -> None:
    send(secured, "told")
    options = spark_options(secured)
    options["kafka.sasl.jaas.config"] = options["kafka.sasl.jaas.config"].replace("-secret", "?")
    with pytest.raises(Exception, match="invalid credentials"):
        spark.read.format("moldau").options(**options, subscribe="told").load().collect()


def test_a_pipeline_runs_with_the_security_of_the_command(
    spark: SparkSession,
    secured: SecuredBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """None of it stands in the file."""
    send(secured, "clicks")
    file = tmp_path / "pipeline.toml"
    file.write_text(
        """
        name = "secured"
        [sources.clicks]
        topic = "clicks"
        format = "json"
        schema = "user STRING"
        dead_letter = "faulty"
        [sinks.copy]
        from = "clicks"
        topic = "copies"
        """
    )
    security = secured.client_options("alice")
    pipeline = replace(load_pipeline(file), security=security)
    assert "alice-secret" not in repr(pipeline)
    options = RunOptions(bootstrap=secured.bootstrap, master="local[2]", once=True)
    watcher = Watching()
    run_pipeline(pipeline, options, stop=watcher.stop, watcher=watcher, spark=spark)
    table = moldau.read_table("copies", bootstrap=secured.bootstrap, **security)
    assert len(table) == COUNT
    settings = tmp_path / "client.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in security.items()))
    where = ["--bootstrap", secured.bootstrap, "--command-config", str(settings), "--json"]
    capsys.readouterr()
    assert run_command(["pipeline", "status", str(file), *where]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {query["name"]: query["lag"] for query in told["queries"]}["copy"] == 0
    assert run_command(["pipeline", "check", str(file), *where]) == 0
    assert "alice-secret" not in capsys.readouterr().out

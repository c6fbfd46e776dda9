"""`pip install moldau`: broker, command line and client; what needs an extra says which."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import moldau
import moldau.testing

for absent in ("numpy", "pyarrow", "pyspark", "pandas"):
    assert importlib.util.find_spec(absent) is None, f"the core brings {absent}"
assert importlib.util.find_spec("moldau.records._codec_native") is not None, "no native codec"
COMMAND = Path(sys.executable).with_name("moldau")


def run(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        (COMMAND, *arguments), input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


with moldau.testing.broker() as broker:
    at = ("--bootstrap", broker.bootstrap)
    run("topics", "create", "clicks", "--partitions", "2", *at)
    run("produce", "clicks", "--key-separator", ":", *at, text="alice:home\nbob:cart\n")
    read = run("consume", "clicks", "--from-beginning", "--until-end", "--format", "%k=%v\\n", *at)
    assert sorted(read.split()) == ["alice=home", "bob=cart"], read
    with moldau.Producer(broker.bootstrap) as producer:
        producer.send("clicks", key=b"carol", value=b"exit").result(30)
    with moldau.Consumer(
        broker.bootstrap, group="readers", topics=["clicks"], auto_offset_reset="earliest"
    ) as consumer:
        values = [record.value for _, record in zip(range(3), consumer, strict=False)]
    assert sorted(values) == [b"cart", b"exit", b"home"], values
    for name in moldau.__all__:
        getattr(moldau, name)
    try:
        moldau.read_table("clicks", bootstrap=broker.bootstrap)
    except ImportError as error:
        said = str(error)
    else:
        said = "a table without pyarrow"
    assert "moldau[arrow]" in said, said

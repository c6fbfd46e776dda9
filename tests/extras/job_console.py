"""`pip install 'moldau[console]'`: the console serves its first page; nothing else came along."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import urllib.request

import moldau.testing

for absent in ("numpy", "pyarrow", "pyspark", "pandas"):
    assert importlib.util.find_spec(absent) is None, f"the extra brings {absent}"
with moldau.testing.broker() as broker:
    command = [sys.executable, "-m", "moldau", "console", "--with-parent"]
    command += ["--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    line = process.stdout.readline()
    assert line.startswith("console at http://127.0.0.1:"), line
    with urllib.request.urlopen(line.removeprefix("console at ").strip(), timeout=60) as answer:
        page = answer.read().decode()
    assert "Moldau" in page
    process.stdin.close()
    assert process.wait(60) == 0

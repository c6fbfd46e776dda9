"""Where metrics are served. What Kafka's own metrics are set with is accepted and not used."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import INT, Kind, OptionType, at_least
from moldau.config.option import Importance, OptionSet, option, optional


def split_address(text: str) -> tuple[str, int]:
    """The host and the port of `host:port`, `[::1]:port` or a port alone, which means this machine
    only; ValueError says what is wrong."""
    host, colon, port = text.strip().rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or (colon and not host):
        raise ValueError("is not of the form host:port; one looks like 127.0.0.1:9404")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and bare == host:
        raise ValueError("has an IPv6 address that does not stand in brackets: [::1]:9404")
    return bare or "127.0.0.1", int(port)


def _check_address(text: str) -> str:
    split_address(text)
    return text.strip()


_ADDRESS = Kind(OptionType.STRING, _check_address)


class MetricOptions(OptionSet, ignored=ignored.METRICS):
    """Prometheus, health, clients' own figures."""

    metrics_listener = optional(
        "metrics.listener",
        _ADDRESS,
        "Where /metrics (Prometheus), /healthz, /readyz, /history and /shares are served: "
        "host:port, or a port alone for this machine only; port 0 is any free one. Without it "
        "nothing is served. There is no authentication: whoever reaches the port can read it, and "
        "nothing else. Not an option of Kafka.",
        importance=Importance.HIGH,
    )
    telemetry_max_bytes = option(
        "telemetry.max.bytes",
        INT,
        1 << 20,
        "The most that a client may push of its own metrics at a time, packed or unpacked.",
        at_least(1),
        importance=Importance.LOW,
    )

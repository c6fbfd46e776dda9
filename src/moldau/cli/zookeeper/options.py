"""Options that the commands share."""

from __future__ import annotations

from pathlib import Path

DEFAULT_FOLDER = Path("moldau-zookeeper")
DEFAULT_PORT = 2181
MAX_NODES = 9

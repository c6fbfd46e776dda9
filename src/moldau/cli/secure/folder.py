"""The folder of `moldau secure init`: how its files are called, and how they are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.errors import StartupError

if TYPE_CHECKING:
    from moldau.coordination.zookeeper_server import ServerSecurity

DEFAULT_FOLDER: Final = Path("moldau-secure")
PUBLIC: Final = 0o644
_PRIVATE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700


class SecureFolder:
    """Paths only: whether they exist is for those who use them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        here = folder.resolve()
        self.authority = here / "ca.pem"
        self.authority_key = here / "ca.key"
        self.broker = here / "broker.pem"
        self.client = here / "client.pem"
        self.server_properties = here / "server.properties"
        self.client_properties = here / "client.properties"
        self.librdkafka_properties = here / "librdkafka.properties"
        self.zookeeper = here / "zookeeper"
        """Its authority signs for servers and brokers alone: no client can have a certificate."""
        self.zookeeper_authority = self.zookeeper / "ca.pem"
        self.zookeeper_authority_key = self.zookeeper / "ca.key"
        self.zookeeper_server = self.zookeeper / "server.pem"
        self.zookeeper_broker = self.zookeeper / "broker.pem"

    def make(self) -> None:
        for folder in (self.path, self.zookeeper):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(_PRIVATE_FOLDER)

    def require(self) -> None:
        """Raises StartupError where `moldau secure init` was not."""
        missing = [path for path in (self.server_properties, self.authority) if not path.is_file()]
        if missing:
            raise StartupError(
                f"{self.path} has no {missing[0].name}; `moldau secure init --out {self.path}` "
                "makes what is needed"
            )

    def server_security(self) -> ServerSecurity:
        """For ZooKeeper's servers."""
        from moldau.coordination.zookeeper_server import ServerSecurity

        for path in (self.zookeeper_server, self.zookeeper_authority):
            if not path.is_file():
                raise StartupError(
                    f"there is no {path}; `moldau secure init` makes one, in a folder of its own"
                )
        return ServerSecurity(key_store=self.zookeeper_server, trust_store=self.zookeeper_authority)


def write_file(path: Path, text: str, mode: int = _PRIVATE) -> None:
    """All of it or nothing; in place of a former one. Secrets are for their owner alone."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)  # whatever the umask takes away
        file.write(text)
    beside.replace(path)

"""asyncio that was imported without OpenSSL: it does without, until somebody connects with TLS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from moldau.security.certificates import issue, make_authority

STORY = """
import sys
from moldau.net.late_tls import import_asyncio_without_tls

import_asyncio_without_tls()
import asyncio
from moldau.clock import SystemClock
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.sockets import SocketNetwork
from support.connection_limits import Limits

certificate, key, authority = sys.argv[1:]


class Receiver:
    def __init__(self, connection):
        self.connection = connection

    def on_frame(self, frame):
        self.connection.send([b"\\0\\0\\0\\2ok"])

    def on_client_gone(self):
        pass

    def on_closed(self):
        pass


class Tls:
    def __init__(self, context):
        self.context = context

    def identify(self, certificate):
        return None

    def refused(self, host, reason):
        raise AssertionError(reason)


async def talk(tls_of_server, tls_of_client):
    clock = SystemClock()
    network = SocketNetwork(clock)
    quotas = ConnectionQuotas(Limits(), clock)
    server = await network.listen(
        "127.0.0.1", 0, Receiver, listener_name="ONE", quotas=quotas, tls=tls_of_server
    )
    channel = await network.connect("localhost", server.port, timeout=60, tls=tls_of_client)
    await channel.send([b"\\0\\0\\0\\1x"])
    assert await channel.receive() == b"ok"
    await channel.close()
    await server.close()


async def story():
    await talk(None, None)
    assert not {"ssl", "_ssl", "moldau.net.tls_connection"} & sys.modules.keys()
    import ssl

    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(certificate, key)
    await talk(Tls(of_server), Tls(ssl.create_default_context(cafile=authority)))


asyncio.run(story())
print("well")
"""


def test_what_is_not_encrypted_needs_no_openssl_and_the_rest_gets_it(tmp_path: Path) -> None:
    authority = make_authority("test")
    issued = issue(authority, "localhost", ["localhost"])
    texts = (issued.certificate, issued.key, authority.certificate)
    files = [tmp_path / name for name in ("certificate", "key", "authority")]
    for path, text in zip(files, texts, strict=True):
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", STORY, *files],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "well\n", done.stderr

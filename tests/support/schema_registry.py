"""A small schema registry in this process: Confluent's REST as documented, over real HTTP.

It numbers schemas, keeps versions of subjects, marks them as deleted, and knows one rule of
compatibility: an Avro field that comes without a default is refused, unless the level is NONE. The
tests of `test_apicurio.py` say the same of a real registry.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Document = dict[str, Any]
_NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


class Refusal(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.document = {"error_code": code, "message": message}


class StoredSchemas:
    """What the registry holds; one lock around all of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.schemas: list[Document] = []  # the id is the place, from 1 on
        self.subjects: dict[str, dict[int, tuple[int, bool]]] = {}  # version -> (id, is deleted)
        self.level = "BACKWARD"
        self.requests: list[str] = []
        self.login: str | None = None  # user:password that has to be given
        self.failures: list[int] = []  # statuses that the next requests get

    def number_of(self, document: Document) -> int:
        kept = {
            "schema": document["schema"],
            "schemaType": document.get("schemaType", "AVRO"),
            "references": document.get("references") or [],
        }
        if kept["schemaType"] == "AVRO":
            try:
                kept["schema"] = json.dumps(json.loads(kept["schema"]), separators=(",", ":"))
            except ValueError:
                raise Refusal(422, 42201, "Invalid Avro schema") from None
        if kept not in self.schemas:
            self.schemas.append(kept)
        return self.schemas.index(kept) + 1

    def live(self, subject: str) -> dict[int, int]:
        found = self.subjects.get(subject, {})
        live = {version: number for version, (number, gone) in found.items() if not gone}
        if not live:
            raise Refusal(404, 40401, f"Subject '{subject}' not found.")
        return live

    def described(self, number: int) -> Document:
        if not 1 <= number <= len(self.schemas):
            raise Refusal(404, 40403, f"Schema {number} not found")
        kept = self.schemas[number - 1]
        shown = {"schema": kept["schema"], "guid": str(self.guid_of(number))}
        if kept["schemaType"] != "AVRO":
            shown["schemaType"] = kept["schemaType"]
        if kept["references"]:
            shown["references"] = kept["references"]
        return shown

    def guid_of(self, number: int) -> uuid.UUID:
        return uuid.uuid5(_NAMESPACE, json.dumps(self.schemas[number - 1], sort_keys=True))

    def incompatibilities(self, subject: str, document: Document, version: str) -> list[str]:
        if document.get("schemaType", "AVRO") != "AVRO" or self.level == "NONE":
            return []
        try:
            live = self.live(subject)
        except Refusal:
            return []
        number = live[max(live) if version == "latest" else int(version)]
        old = json.loads(self.schemas[number - 1]["schema"])
        new = json.loads(self.schemas[self.number_of(document) - 1]["schema"])
        known = {one["name"] for one in old.get("fields", ())} if isinstance(old, dict) else set()
        return [
            f"READER_FIELD_MISSING_DEFAULT_VALUE: {one['name']}"
            for one in (new.get("fields", ()) if isinstance(new, dict) else ())
            if one["name"] not in known and "default" not in one
        ]

    # Requests

    def get(self, parts: list[str], query: dict[str, str]) -> object:
        match parts:
            case ["subjects"]:
                wants_deleted = query.get("deleted") == "true"
                return [
                    name
                    for name, versions in self.subjects.items()
                    if wants_deleted or any(not gone for _, gone in versions.values())
                ]
            case ["subjects", subject, "versions"]:
                return sorted(self.live(subject))
            case ["subjects", subject, "versions", version]:
                return self.show_version(subject, version)
            case ["schemas", "ids", number]:
                return self.described(int(number))
            case ["schemas", "ids", number, "versions"]:
                return [
                    {"subject": name, "version": version}
                    for name, versions in self.subjects.items()
                    for version, (found, gone) in versions.items()
                    if found == int(number) and not gone
                ]
            case ["schemas", "guids", guid]:
                for number in range(1, len(self.schemas) + 1):
                    if str(self.guid_of(number)) == guid:
                        return {"id": number, **self.described(number)}
                raise Refusal(404, 40403, "Schema not found")
            case ["config"]:
                return {"compatibilityLevel": self.level}
            case ["config", subject]:
                raise Refusal(404, 40408, f"Subject '{subject}' does not have subject-level config")
        raise Refusal(404, 404, "HTTP 404 Not Found")

    def show_version(self, subject: str, version: str) -> Document:
        live = self.live(subject)
        wanted = max(live) if version == "latest" else int(version)
        if wanted not in live:
            raise Refusal(404, 40402, f"Version {wanted} not found.")
        number = live[wanted]
        return {"subject": subject, "version": wanted, "id": number, **self.described(number)}

    def post(self, parts: list[str], document: Document) -> object:
        match parts:
            case ["subjects", subject, "versions"]:
                problems = self.incompatibilities(subject, document, "latest")
                if problems:
                    raise Refusal(409, 409, f"Schema being registered is incompatible: {problems}")
                return self.register(subject, self.number_of(document))
            case ["subjects", subject]:
                number = self.number_of(document)
                for version, found in self.live(subject).items():
                    if found == number:
                        return self.show_version(subject, str(version))
                raise Refusal(404, 40403, "Schema not found")
            case ["compatibility", "subjects", subject, "versions", *rest]:
                self.live(subject)
                problems = self.incompatibilities(subject, document, rest[0] if rest else "latest")
                return {"is_compatible": not problems, "messages": problems}
        raise Refusal(404, 404, "HTTP 404 Not Found")

    def register(self, subject: str, number: int) -> Document:
        versions = self.subjects.setdefault(subject, {})
        if (number, False) not in versions.values():
            versions[max(versions, default=0) + 1] = (number, False)
        version = next(one for one, kept in versions.items() if kept == (number, False))
        return {"id": number, "version": version, "guid": str(self.guid_of(number))}

    def delete(self, parts: list[str], query: dict[str, str]) -> object:
        is_permanent = query.get("permanent") == "true"
        match parts:
            case ["subjects", subject]:
                versions = self.subjects.get(subject)
                if not versions:
                    raise Refusal(404, 40401, f"Subject '{subject}' not found.")
                return [
                    self.delete_version(subject, version, is_permanent)
                    for version in sorted(versions)
                ]
            case ["subjects", subject, "versions", version]:
                wanted = max(self.live(subject)) if version == "latest" else int(version)
                return self.delete_version(subject, wanted, is_permanent)
        raise Refusal(404, 404, "HTTP 404 Not Found")

    def delete_version(self, subject: str, version: int, is_permanent: bool) -> int:
        versions = self.subjects.get(subject, {})
        if version not in versions:
            raise Refusal(404, 40402, f"Version {version} not found.")
        number, is_gone = versions[version]
        if is_permanent and not is_gone:
            raise Refusal(404, 40407, f"Subject '{subject}' was not deleted first")
        if is_permanent:
            del versions[version]
            if not versions:
                del self.subjects[subject]
        else:
            versions[version] = (number, True)
        return version


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer(lambda parts, query, body: self.server.stored.get(parts, query))

    def do_POST(self) -> None:
        self._answer(lambda parts, query, body: self.server.stored.post(parts, body))

    def do_DELETE(self) -> None:
        self._answer(lambda parts, query, body: self.server.stored.delete(parts, query))

    def _answer(self, work: Any) -> None:
        stored = self.server.stored
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        parts = [unquote(one) for one in url.path.split("/") if one]
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        status, document = 200, None
        with stored.lock:
            stored.requests.append(f"{self.command} {url.path}")
            try:
                self._check_login(stored)
                if stored.failures:
                    raise Refusal(stored.failures.pop(0), 50001, "Error in the backend data store")
                document = work(parts, query, json.loads(body) if body else {})
            except Refusal as refusal:
                status, document = refusal.status, refusal.document
            except (ValueError, KeyError) as error:
                status, document = 422, {"error_code": 422, "message": f"bad request: {error!r}"}
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _check_login(self, stored: StoredSchemas) -> None:
        if stored.login is not None:
            wanted = f"Basic {base64.b64encode(stored.login.encode()).decode()}"
            if self.headers.get("Authorization") != wanted:
                raise Refusal(401, 40101, "Unauthorized")

    def log_message(self, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stored: StoredSchemas


class RegistryServer:
    """The address, and what is stored behind it."""

    def __init__(self, url: str, stored: StoredSchemas) -> None:
        self.url = url
        self.stored = stored


@contextmanager
def serve_registry(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """On a free port of the loopback interface, unless told which."""
    server = _Server(("127.0.0.1", port), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.stored = StoredSchemas()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="registry")
    thread.start()
    try:
        scheme = "http" if tls is None else "https"
        yield RegistryServer(f"{scheme}://127.0.0.1:{server.server_address[1]}", server.stored)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A schema registry: Confluent's REST, which Apicurio and others serve as well. A shell.

Blocking, and safe for threads. What cannot change is remembered: schemas by number, and versions of
subjects; so are codecs, which take a while to make. What can change, such as a subject's latest
version, is asked for each time. A number that the registry does not have, or a schema that is none,
is asked for again after half a minute: a topic of other records costs no request for each of them.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import Final, Generic, Protocol, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

from moldau.errors import ConfigurationError, MissingExtraError, MoldauError, SchemaNotFoundError
from moldau.schemas.http import RegistryHttp
from moldau.schemas.model import (
    Compatibility,
    RegisteredSchema,
    ResolvedSchema,
    Schema,
    SchemaKey,
    SchemaType,
)
from moldau.schemas.rules.answers import (
    as_list,
    as_object,
    find_failure,
    read_places,
    read_registered,
    schema_to_document,
)
from moldau.schemas.settings import (
    RegistrySettings,
    basic_header,
    bearer_header,
    login_in_url,
    read_registry_settings,
)

_KEPT_CODECS: Final = 1000
_KEPT_VERSIONS: Final = 5000
_UNUSABLE_SECONDS: Final = 30.0
_MOST_REFERENCES: Final = 1000
_DEEPEST_REFERENCE: Final = 50

Version = int | str
"""A number, or "latest"."""


class SchemaRegistry:
    """One registry.

        registry = moldau.schemas.SchemaRegistry("http://127.0.0.1:8081")
        registry.subjects()

    `url` may be several, separated by commas, and may have `user:password@` in it; `basic_auth` is
    `user:password`, `bearer_token` a token. `tls` is a context for https; without one, whom the
    operating system trusts. No request takes longer than `timeout_seconds`;
    unless it is given, 10, or 2 where nobody listens.
    """

    def __init__(
        self,
        url: str,
        *,
        basic_auth: str | None = None,
        bearer_token: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        urls = tuple(one.strip() for one in url.split(",") if one.strip())
        login = basic_auth or next((found for one in urls if (found := login_in_url(one))), None)
        headers = bearer_header(bearer_token) if bearer_token else {}
        if login and not bearer_token:
            headers = basic_header(login)
        self._begin(
            RegistrySettings(urls=urls, headers=headers, tls=tls, timeout_seconds=timeout_seconds)
        )

    @classmethod
    def from_settings(cls, properties: Mapping[str, str]) -> Self:
        """From settings with Confluent's names: `schema.registry.url`, `basic.auth.user.info`,
        `schema.registry.ssl.truststore.location`, …; raises ConfigurationError."""
        made = cls.__new__(cls)
        made._begin(read_registry_settings(properties))
        return made

    def _begin(self, settings: RegistrySettings) -> None:
        self._http = RegistryHttp(
            settings.urls,
            headers=settings.headers,
            tls=settings.tls,
            timeout_seconds=settings.timeout_seconds,
        )
        self._codecs: BoundedCache[SchemaKey, SchemaCodec] = BoundedCache(_KEPT_CODECS)
        self._registered: BoundedCache[SchemaKey, RegisteredSchema] = BoundedCache(_KEPT_CODECS)
        self._versions: BoundedCache[tuple[str, int], RegisteredSchema] = BoundedCache(
            _KEPT_VERSIONS
        )
        self._ids: BoundedCache[tuple[str, Schema, bool, bool], RegisteredSchema] = BoundedCache(
            _KEPT_VERSIONS
        )
        self._unusable: BoundedCache[SchemaKey, tuple[float, MoldauError]] = BoundedCache(
            _KEPT_CODECS
        )

    def __repr__(self) -> str:
        return f"SchemaRegistry({str(self._http)!r})"

    @property
    def address(self) -> str:
        """Where it is; without passwords."""
        return str(self._http)

    # What there is

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Names of subjects; with `deleted` also those that are only marked as deleted."""
        query = {"deleted": "true"} if deleted else {}
        if prefix:
            query["subjectPrefix"] = prefix
        found = as_list(self._get("/subjects", query), str, self.address)
        return sorted(one for one in found if one.startswith(prefix))

    def versions(self, subject: str) -> list[int]:
        """The numbers of a subject's versions; raises SchemaNotFoundError."""
        return as_list(self._get(f"/subjects/{_quoted(subject)}/versions"), int, self.address)

    def version(self, subject: str, version: Version = "latest") -> RegisteredSchema:
        """One version of a subject, asked for now; raises SchemaNotFoundError."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        found = read_registered(self._get(path), self.address)
        self._remember(found)
        if found.version is not None:
            self._versions.put((subject, found.version), found)
        return found

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        """The schema of a number or a GUID; raises SchemaNotFoundError."""
        return self._registered.get(key, lambda: self._fetch(key))

    def used_by(self, schema_id: int) -> list[tuple[str, int]]:
        """Subjects and versions that have this number."""
        return read_places(self._get(f"/schemas/ids/{schema_id}/versions"), self.address)

    def compatibility_level(self, subject: str | None = None) -> str:
        """BACKWARD, FULL, NONE, …: of a subject, or where it has none of its own."""
        if subject is not None:
            try:
                return self._level(f"/config/{_quoted(subject)}")
            except SchemaNotFoundError:
                pass
        return self._level("/config")

    def _level(self, path: str) -> str:
        found = as_object(self._get(path), self.address)
        return str(found.get("compatibilityLevel") or found.get("compatibility"))

    # What changes it

    def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Have a subject hold a schema, which gets a number; one that it has keeps its number.

        Raises IncompatibleSchemaError where the subject's level of compatibility forbids it.
        """
        return self._ids.get(
            (subject, schema, normalize, True),
            lambda: self._post_schema(subject, schema, "/versions", normalize),
        )

    def look_up(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The number of a schema that a subject holds; raises SchemaNotFoundError."""
        return self._ids.get(
            (subject, schema, normalize, False),
            lambda: self._post_schema(subject, schema, "", normalize),
        )

    def _post_schema(
        self, subject: str, schema: Schema, end: str, normalize: bool
    ) -> RegisteredSchema:
        answer = self._ask(
            "POST",
            f"/subjects/{_quoted(subject)}{end}",
            {"normalize": "true"} if normalize else None,
            schema_to_document(schema),
        )
        document = as_object(answer, self.address)
        given = {"schema": schema.text, "schemaType": schema.type, "subject": subject}
        return read_registered({**given, **document}, self.address, references=schema.references)

    def check(
        self, subject: str, schema: Schema, version: Version | None = "latest"
    ) -> Compatibility:
        """Whether a subject would take a schema beside its latest version, or beside all that its
        level of compatibility is about (`version=None`)."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions"
        answer = self._ask(
            "POST",
            path if version is None else f"{path}/{version}",
            {"verbose": "true"},
            schema_to_document(schema),
        )
        found = as_object(answer, self.address)
        messages = found.get("messages")
        told = tuple(map(str, messages)) if isinstance(messages, list) else ()
        return Compatibility(found.get("is_compatible") is True, told)

    def delete(
        self, subject: str, version: Version | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Delete a version, or all of them: marked at first, gone with `permanent`, which only
        what is marked can be. Records that were written with it can be read until then."""
        path = f"/subjects/{_quoted(subject)}"
        if version is not None:
            path += f"/versions/{version}"
        found = self._ask("DELETE", path, {"permanent": "true"} if permanent else None)
        self._versions.forget(lambda one: one[0] == subject)
        self._ids.forget(lambda one: one[0] == subject)
        if version is not None:
            return [found] if isinstance(found, int) else []
        return as_list(found, int, self.address)

    # What is made of it

    def resolve(self, schema: Schema) -> ResolvedSchema:
        """A schema with all that it refers to; raises ConfigurationError where that has no end."""
        return self._resolve(schema, (), [0])

    def _resolve(
        self, schema: Schema, above: tuple[tuple[str, int], ...], count: list[int]
    ) -> ResolvedSchema:
        referred: dict[str, ResolvedSchema] = {}
        for one in schema.references:
            where = (one.subject, one.version)
            count[0] += 1
            if where in above or len(above) > _DEEPEST_REFERENCE or count[0] > _MOST_REFERENCES:
                raise ConfigurationError(
                    f"the references of a schema in {self.address} go in circles or have no end: "
                    f"{one.subject} version {one.version}"
                )
            found = self._versions.get(where, lambda at=where: self.version(*at))  # type: ignore[misc]
            referred[one.name] = self._resolve(found.schema, (*above, where), count)
        return ResolvedSchema(schema=schema, referred=referred)

    def codec(self, key: SchemaKey) -> SchemaCodec:
        """What reads and writes by a schema; raises SchemaNotFoundError, and what is wrong with a
        schema that cannot be used."""

        def make() -> SchemaCodec:
            self._raise_unusable(key)
            try:
                return make_codec(self.resolve(self.schema(key).schema))
            except (SchemaNotFoundError, ConfigurationError) as error:
                self._unusable.put(key, (time.monotonic(), error))
                raise

        return self._codecs.get(key, make)

    def codec_of(self, registered: RegisteredSchema) -> SchemaCodec:
        """The same, of what was registered or found."""
        if registered.id is not None:
            self._registered.put(registered.id, registered)
            return self.codec(registered.id)

        return make_codec(self.resolve(registered.schema))

    def find_codec(self, key: SchemaKey) -> SchemaCodec | None:
        """As `codec`, without waiting: None for one that has to be looked up. Raises what is known
        to be missing or of no use."""
        found = self._codecs.find(key)
        if found is None:
            self._raise_unusable(key)
        return found

    def _fetch(self, key: SchemaKey) -> RegisteredSchema:
        path = f"/schemas/guids/{key}" if isinstance(key, UUID) else f"/schemas/ids/{key}"
        try:
            found = read_registered(self._get(path), self.address)
        except SchemaNotFoundError as error:
            raise SchemaNotFoundError(
                f"the schema registry at {self.address} has no schema {key}; a record that "
                "names it was written with another registry, or is no record of a registry at all",
                error.status,
                error.registry_code,
            ) from error
        guid = key if isinstance(key, UUID) else found.guid
        schema_id = found.id if isinstance(key, UUID) else key
        return RegisteredSchema(schema=found.schema, id=schema_id, guid=guid)

    def _raise_unusable(self, key: SchemaKey) -> None:
        found = self._unusable.find(key)
        if found is not None and time.monotonic() - found[0] < _UNUSABLE_SECONDS:
            raise found[1].with_traceback(None)

    def _remember(self, found: RegisteredSchema) -> None:
        for key in (found.id, found.guid):
            if key is not None:
                self._registered.put(key, found)

    # The wire

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> object:
        return self._ask("GET", path, query)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> object:
        answer = self._http.request(method, path, query, body)
        failure = find_failure(answer.status, answer.document, self.address)
        if failure is not None:
            raise failure
        return answer.document


def _quoted(subject: str) -> str:
    if not subject:
        raise ConfigurationError("the name of a subject is empty")
    return quote(subject, safe="")


# What turns values into bytes and back by one schema, of whichever type. A shell: libraries load.
#
# fastavro, jsonschema and protobuf do the work, each loaded with the first schema of its type.


T = TypeVar("T")


class SchemaCodec(Protocol):
    """One schema at work. Safe for threads.

    A value is what programs have: dictionaries for Avro and JSON, a message for Protobuf, times and
    decimals as Python has them. A document is the same as JSON has it.
    """

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def name(self) -> str | None:
        """The name of the record or message, or the title; None where there is none."""

    def read(self, body: bytes, indexes_apart: bytes | None = None) -> object:
        """The value; raises SchemaDecodingError."""

    def write(self, value: object) -> bytes:
        """All that stands behind the number of the schema; raises SchemaEncodingError."""

    def to_document(self, value: object) -> object:
        """The same for JSON."""

    def from_document(self, document: object) -> object:
        """A value that `write` takes; raises SchemaEncodingError, with the place that is wrong."""


def make_codec(schema: ResolvedSchema, *, message: str | None = None) -> SchemaCodec:
    """Raises ConfigurationError for a schema that is none, and MissingExtraError.

    `message` is the full name of the Protobuf message that is written; without it, the first one.
    """
    match schema.schema.type:
        case "AVRO":
            return _load("fastavro", lambda: _make_avro(schema))
        case "JSON":
            return _load("jsonschema", lambda: _make_json(schema))
        case "PROTOBUF":
            return _load("protobuf and grpcio-tools", lambda: _make_protobuf(schema, message))


def _make_avro(schema: ResolvedSchema) -> SchemaCodec:
    from moldau.schemas.avro import AvroCodec

    return AvroCodec(schema)


def _make_json(schema: ResolvedSchema) -> SchemaCodec:
    from moldau.schemas.json_schema import JsonCodec

    return JsonCodec(schema)


def _make_protobuf(schema: ResolvedSchema, message: str | None) -> SchemaCodec:
    from moldau.schemas.protobuf import ProtobufCodec

    return ProtobufCodec(schema, message)


def _load(what: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ImportError as error:
        raise MissingExtraError(
            f"schemas of this type need {what}, which is not installed ({error}): "
            "pip install 'moldau[schemas]'"
        ) from error
    except RecursionError as error:
        raise ConfigurationError("the schema is nested too deeply to be used") from error
    except MoldauError:
        raise
    except Exception as error:  # libraries stumble over what is no schema in many ways
        raise ConfigurationError(f"the schema cannot be used: {error!r:.200}") from error


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """The entries that were used last. Safe for threads.

    Two threads that want the same thing at the same time have it looked up once. What a look-up
    raises is remembered by nobody here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._under_way: dict[K, Future[V]] = {}

    def find(self, key: K) -> V | None:
        """Without waiting for anything."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def forget(self, matches: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [one for one in self._kept if matches(one)]:
                del self._kept[key]

    def get(self, key: K, look_up: Callable[[], V]) -> V:
        """What is kept, or else what `look_up` gives, which is kept then."""
        found = self.find(key)
        if found is not None:
            return found
        with self._lock:
            waiting = self._under_way.get(key)
            if waiting is None:
                mine = self._under_way[key] = Future[V]()
        if waiting is not None:
            return waiting.result()  # ends when the look-up does, and that has a limit
        try:
            value = look_up()
        except BaseException as error:
            mine.set_exception(error)
            mine.exception()  # seen: whoever looked it up raises it
            raise
        else:
            self.put(key, value)
            mine.set_result(value)
            return value
        finally:
            with self._lock:
                del self._under_way[key]

"""Profiles: the address and the security settings of a cluster under a name.

A profile is a properties file with Kafka's names, so that Kafka's own tools can take it as well:
`bootstrap.servers`, `security.protocol` and the like; `command.config` names a further file whose
settings count where the profile says nothing. Only its owner can read it. What is in use is a name
in a file beside them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from moldau.cli.output import warn
from moldau.config.client_options import (
    AdminOptions,
    ConsumerOptions,
    ProducerOptions,
    QueueOptions,
)
from moldau.config.declarations.security import ClientSecurityOptions
from moldau.config.option import suggest
from moldau.config.properties import expand_secrets, load_properties, parse_properties
from moldau.errors import ConfigurationError
from moldau.schemas.settings import SETTINGS as REGISTRY_SETTINGS
from moldau.security.rules.sasl import format_jaas, parse_jaas

BOOTSTRAP: Final = "bootstrap.servers"
COMMAND_CONFIG: Final = "command.config"
SCHEMA_REGISTRY: Final = "schema.registry.url"
REGISTRY_LOGIN: Final = "basic.auth.user.info"

HIDDEN: Final = "(hidden)"
_SUFFIX: Final = ".properties"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}]+\}")
_SECRET_NAME: Final = re.compile(r"password|secret|credential|token|\.key$|jaas", re.IGNORECASE)
"""Of a setting that is not known here: other clients read the file, too."""
_OTHER_CLIENTS: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "auto.register.schemas",
        "bootstrap.controllers",
        "client.dns.lookup",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "interceptor.classes",
        "internal.auto.downgrade.txn.commit",
        "internal.leave.group.on.close",
        "key.deserializer",
        "key.serializer",
        "key.subject.name.strategy",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.mechanisms",
        "security.providers",
        "send.buffer.bytes",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
        "specific.avro.reader",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "use.latest.version",
        "value.deserializer",
        "value.serializer",
        "value.subject.name.strategy",
    }
)
"""Settings of Kafka's Java clients and serializers that Moldau's clients do not have. The file is
often shared with such clients."""
_OTHER_PREFIXES: Final = (
    "config.providers.",
    "sasl.kerberos.",
    "sasl.login.connect.",
    "sasl.login.read.",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.oauthbearer.",
    "schema.registry.",
)
_LOGIN_IN_URL: Final = re.compile(r"(?<=://)[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile; `settings` as they stand in its file."""

    name: str
    path: Path
    settings: Mapping[str, str]

    @property
    def bootstrap(self) -> str | None:
        return self.settings.get(BOOTSTRAP)

    def read(self) -> dict[str, str]:
        """All that it says, secrets looked up, with what the file says that it names."""
        own = dict(expand_secrets(load_properties(self.path.read_text("utf-8"), self.path.name)))
        further = own.get(COMMAND_CONFIG)
        return own if further is None else {**read_settings(Path(further)), **own}

    def shown(self) -> dict[str, str]:
        """For people and logs: without secrets. Where a secret is kept is none."""
        return {name: _without_secret(name, text) for name, text in self.settings.items()}


def _without_secret(name: str, text: str) -> str:
    declared = ClientSecurityOptions.declarations().get(name)
    if declared is None:
        is_secret = name.endswith(REGISTRY_LOGIN) or _SECRET_NAME.search(name) is not None
    else:
        is_secret = declared.is_sensitive
    if _REFERENCE.fullmatch(text):
        return text
    if not is_secret:
        return _LOGIN_IN_URL.sub(f"{HIDDEN}@", text)
    return _jaas_without_secrets(text) if name == "sasl.jaas.config" else HIDDEN


def _jaas_without_secrets(text: str) -> str:
    """Who it is may be seen, and where a secret is kept."""
    try:
        jaas = parse_jaas(text)
    except ValueError:
        return HIDDEN
    options = {
        name: value if name == "username" or _REFERENCE.fullmatch(value) else HIDDEN
        for name, value in jaas.options.items()
    }
    return format_jaas(jaas.module, options)


def read_settings(path: Path) -> dict[str, str]:
    """Of a file as Kafka's tools take it, secrets looked up."""
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise typer.BadParameter(
            f"{path} cannot be read: {error.strerror}", param_hint="--command-config"
        ) from None
    return dict(expand_secrets(load_properties(text, path.name)))


def warn_of_unknown_names(settings: Mapping[str, str], source: str) -> None:
    """Warn of names that no client knows: they are probably misspelt, and have no effect."""
    known = {BOOTSTRAP, COMMAND_CONFIG, *REGISTRY_SETTINGS, *_OTHER_CLIENTS}
    for options in (AdminOptions, ConsumerOptions, ProducerOptions, QueueOptions):
        known.update(options.declarations())
    for name in settings:
        if name not in known and not name.startswith(_OTHER_PREFIXES):
            warn(f"{source}: unknown setting {name} is ignored{suggest(name, known)}")


def list_profiles() -> list[Profile]:
    found = sorted(profile_folder().glob(f"*{_SUFFIX}"))
    return [_load(path.name.removesuffix(_SUFFIX), path) for path in found]


def require_profile(name: str) -> Profile:
    path = _path_of(name)
    if not path.exists():
        names = [one.name for one in list_profiles()]
        there = f"there are {', '.join(names)}" if names else "there are none"
        raise typer.BadParameter(
            f"there is no profile {name!r}; {there}; `moldau profile create` makes one",
            param_hint="--profile",
        )
    return _load(name, path)


def find_profile_in_use() -> Profile | None:
    try:
        name = in_use_file().read_text().strip()
    except FileNotFoundError:
        return None
    return require_profile(name) if name else None


def name_in_use() -> str | None:
    """Also of a profile that is not there any more."""
    try:
        return in_use_file().read_text().strip() or None
    except FileNotFoundError:
        return None


def use_profile(name: str | None) -> None:
    """From now on, in every terminal; None: none of them."""
    if name is None:
        in_use_file().unlink(missing_ok=True)
    else:
        require_profile(name)
        _write_privately(in_use_file(), name + "\n")


def save_profile(name: str, settings: Mapping[str, str]) -> Profile:
    path = _path_of(name)
    lines = [f"{key}={_escape(value)}\n" for key, value in settings.items()]
    _write_privately(path, "".join(lines))
    return _load(name, path)


def delete_profile(name: str) -> None:
    require_profile(name).path.unlink()
    if name_in_use() == name:
        use_profile(None)


def check_settings(settings: Mapping[str, str], option: str) -> None:
    """Refuse what no client would read: a misspelt name would be a setting that does not hold."""
    own = ClientSecurityOptions.declarations()
    of_registry = {f"schema.registry.{name}" for name in own if name.startswith("ssl.")}
    known = {*own, *REGISTRY_SETTINGS, *of_registry}
    for name in settings:
        if name not in known:
            raise typer.BadParameter(
                f"{name} is no setting of a connection{suggest(name, known)}", param_hint=option
            )
    AdminOptions.read(
        {
            name: value
            for name, value in settings.items()
            if name in ClientSecurityOptions.declarations() and not _REFERENCE.search(value)
        }
    )


def _load(name: str, path: Path) -> Profile:
    try:
        lines = parse_properties(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"the profile {path} cannot be read: {error}") from None
    return Profile(name=name, path=path, settings={one.name: one.value for one in lines})


def _path_of(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is no name of a profile: letters, digits, '.', '_' and '-'",
            param_hint="NAME",
        )
    return profile_folder() / f"{name}{_SUFFIX}"


def _escape(value: str) -> str:
    """As Java reads it: a space at the beginning and a backslash would be lost otherwise."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text.startswith((" ", "\t", "\f")) else text


def _write_privately(path: Path, text: str) -> None:
    """Whole or not at all, and readable by its owner alone from its first moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")  # made with 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


# Where profiles are kept: in the folder that the system has for a user's settings.
#
# ~/.config/moldau/profiles/NAME.properties
# ~/.config/moldau/profile-in-use


def profile_folder() -> Path:
    return Path(typer.get_app_dir("moldau")) / "profiles"


def in_use_file() -> Path:
    """Holds the name of the profile that counts where none is named."""
    return Path(typer.get_app_dir("moldau")) / "profile-in-use"

"""Who may do what: the authorizer, super users, the audit log."""

from __future__ import annotations

from moldau.config.kinds import BOOLEAN, CLASS, STRING, Kind, OptionType, Rule
from moldau.config.option import Importance, OptionSet, option, optional
from moldau.model import Principal

AUTHORIZER_CLASSES = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "moldau.security.authorizer.Authorizer",
)
"""Kafka's two, whose part Moldau's own takes."""


def _find_class_fault(name: str) -> str | None:
    if name in ("", *AUTHORIZER_CLASSES):
        return None
    return (
        "is a class of Java that Moldau cannot load, and without it everybody could do everything: "
        f"use {AUTHORIZER_CLASSES[1]}, whose lists Moldau keeps by itself"
    )


def parse_super_users(text: str) -> tuple[Principal, ...]:
    """Read `User:alice;User:bob`; semicolons, since names of certificates contain commas."""
    named = (part.strip() for part in text.split(";"))
    try:
        return tuple(Principal.parse(name) for name in named if name)
    except ValueError as fault:
        raise ValueError(f"has an entry that is no principal: {fault}") from None


class AuthorizationOptions(OptionSet):
    """Access control lists and the audit log."""

    authorizer_class_name = option(
        "authorizer.class.name",
        CLASS,
        "",
        "Whether access control lists are in force. Both of Kafka's authorizers "
        "(org.apache.kafka.metadata.authorizer.StandardAuthorizer, "
        "kafka.security.authorizer.AclAuthorizer) mean Moldau's own. Without it everybody who can "
        "connect may do everything.",
        Rule("empty, or one of Kafka's authorizers", _find_class_fault),
        importance=Importance.LOW,
    )
    super_users = option(
        "super.users",
        Kind(OptionType.STRING, parse_super_users),
        (),
        "Who may do everything, whatever the lists say: User:admin;User:broker. The principal "
        "under which brokers talk to each other belongs here.",
        importance=Importance.HIGH,
    )
    allow_everyone_if_no_acl_found = option(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether everybody may use a resource that no access control list is about.",
        importance=Importance.HIGH,
    )
    audit_log_path = optional(
        "audit.log.path",
        STRING,
        "A file to which the audit log is appended as JSON lines: who was refused what, and who "
        "changed topics, settings, access control lists and the like. Without it the audit log is "
        "a part of the broker's log (the logger moldau.audit, level info). An option of Moldau's "
        "own.",
        importance=Importance.LOW,
    )

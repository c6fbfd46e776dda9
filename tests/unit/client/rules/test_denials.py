"""A denial says how it can be granted."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from moldau.client.rules.broker_errors import CLUSTER, describe_missing_right, error_for
from moldau.errors import TopicAuthorizationError


@pytest.mark.parametrize(
    ("told", "command"),
    [
        (
            "User:alice lacks Write on Topic:clicks",
            "moldau acls add --allow-principal User:alice --operation write --topic clicks",
        ),
        (
            "User:CN=a b lacks Read on Group:g h",
            "moldau acls add --allow-principal 'User:CN=a b' --operation read --group 'g h'",
        ),
        (
            "User:alice lacks DescribeConfigs on Cluster:kafka-cluster",
            "moldau acls add --allow-principal User:alice --operation describeconfigs --cluster",
        ),
        (
            "User:a lacks Write on TransactionalId:t",
            "moldau acls add --allow-principal User:a --operation write --transactional-id t",
        ),
    ],
)
def test_who_lacks_what_is_granted_with_a_command(told: str, command: str) -> None:
    error = error_for(ErrorCode.topic_authorization_failed, told)
    assert isinstance(error, TopicAuthorizationError)
    assert str(error) == f"{told}; an administrator grants it with `{command}`"


def test_a_broker_that_says_nothing_is_about_something() -> None:
    for code, subject, option in (
        (ErrorCode.group_authorization_failed, "group 'g h'", " --group 'g h'"),
        (ErrorCode.topic_authorization_failed, "topic 'clicks'", " --topic clicks"),
        (ErrorCode.topic_authorization_failed, "clicks-0", ""),
    ):
        error = error_for(code, None, subject)
        assert subject in str(error)
        assert str(error).endswith(
            f"moldau acls add --allow-principal User:NAME --operation OPERATION{option}`"
        )


def test_the_subject_in_front_is_not_the_principal() -> None:
    told = "User:alice lacks Alter on Topic:clicks"
    error = error_for(ErrorCode.topic_authorization_failed, told, "partitions of views")
    assert "--allow-principal User:alice --operation alter --topic clicks" in str(error)


def test_what_can_only_be_one_right_is_named_though_the_broker_does_not_say_whose() -> None:
    told = describe_missing_right("Describe", "Topic:clicks")
    error = error_for(ErrorCode.topic_authorization_failed, told, "topic 'clicks'")
    assert str(error).startswith("topic 'clicks': the principal lacks Describe on Topic:clicks;")
    assert "--allow-principal User:NAME --operation describe --topic clicks`" in str(error)
    error = error_for(
        ErrorCode.cluster_authorization_failed, describe_missing_right("Alter", CLUSTER)
    )
    assert str(error).endswith("--allow-principal User:NAME --operation alter --cluster`")

"""`moldau cluster health`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.diagnosis.rules.survey import ClusterSurvey


def health(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Say whether a cluster serves all that it has; exits with 1 when it does not.

    Brokers that do not answer, no controller, partitions without a leader, with too few replicas in
    sync for acks=all, or with fewer copies than they should have, disks that failed or are full.
    Works with Apache Kafka, too. `moldau doctor` looks further, and takes longer.

    \b
    For example:
    moldau cluster health
    moldau cluster health --bootstrap kafka:9092 --json
    """
    from moldau.cli.doctor import count_of, print_findings
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin
    from moldau.diagnosis.cluster_look import find_what_is_wrong

    survey = with_admin(bootstrap, _look)
    findings = find_what_is_wrong(survey)
    if as_json:
        print_document(
            {
                "healthy": not findings,
                "findings": [one.document() for one in findings],
                "unchecked": list(survey.unchecked),
            }
        )
    else:
        print_findings(findings, survey.unchecked)
        typer.echo(f"{'not ' if findings else ''}healthy: {count_of(survey)}")
    if findings:
        raise typer.Exit(1)


async def _look(admin: AsyncAdmin) -> ClusterSurvey:
    from moldau.clock import SystemClock
    from moldau.diagnosis.cluster_look import ClusterLook

    return await ClusterLook(admin, clock=SystemClock()).take_vital_signs()

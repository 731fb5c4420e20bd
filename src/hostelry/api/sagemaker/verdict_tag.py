"""The tag of an endpoint whose updates are decided by a verdict on the new fleet."""

from collections.abc import Mapping
from dataclasses import replace

from hostelry.api.context import CallContext
from hostelry.api.refusals import KIND_WORDS
from hostelry.api.tags import read_tags
from hostelry.base.errors import validation_error
from hostelry.domain.allowance import Allowance, allowance_of
from hostelry.domain.endpoint import Deployment, Endpoint, UpdateGuard

VERDICT_TAG = "hostelry:verdict"
KINDS = ("endpoint", "endpoint-config", "inference-component")  # on others it is any tag
ON, OFF = "on", "off"
SETTINGS = ("errors", "latency", "alpha")  # no request of an update has two answers
EXAMPLE = "errors=0.01 latency=0.25 alpha=0.01"


def tagged_allowance(tags: Mapping[str, str]) -> Allowance | None:
    """What the tags allow a new fleet; None where no verdict is asked for.

    Raises ValidationException for a value that cannot be read.
    """
    value = tags.get(VERDICT_TAG, OFF)
    words = value.split()
    if words in ([ON], [OFF]):
        return Allowance() if words == [ON] else None
    given = {name: text for name, _, text in (it.partition("=") for it in words)}
    problem = "a setting is given twice" if len(given) < len(words) else "it is empty"
    if words and len(given) == len(words):
        try:
            return allowance_of(given, SETTINGS)
        except ValueError as error:
            problem = str(error)
    raise validation_error(
        f'Tag {VERDICT_TAG} is "{value}": {problem}. It must be {ON}, {OFF}, or settings such as'
        f' "{EXAMPLE}".'
    )


def check_verdict_tag(
    tags: Mapping[str, str], kind: str, *, takes_components: bool = False
) -> None:
    """Refuse the tag with a wrong value, and where no update would be decided by it.

    `kind` is the tagged resource's, as its ARN has it; raises ValidationException.
    """
    if VERDICT_TAG not in tags or kind not in KINDS:
        return
    tagged_allowance(tags)
    if kind != "endpoint" or takes_components:
        what = "endpoint for inference components" if takes_components else KIND_WORDS[kind]
        raise validation_error(
            f"Tag {VERDICT_TAG} is for endpoints of models, whose updates it decides. What was to"
            f" be tagged: {what}."
        )


def with_allowance(
    context: CallContext, endpoint: Endpoint, pending: Deployment
) -> UpdateGuard | None:
    """The guard of the update to `pending`, with what the endpoint's tags allow the new fleet.

    Raises ValidationException where no step of the update could be decided.
    """
    guard, allowance = pending.guard, tagged_allowance(read_tags(context, endpoint.arn))
    if allowance is None:
        return guard
    if guard is None or not (guard.bake_s > 0 or guard.traffic.is_gradual):
        raise validation_error(
            f'Endpoint "{endpoint.arn}" has the tag {VERDICT_TAG}, and this update would end before'
            " any verdict. Give it a DeploymentConfig with CANARY, LINEAR,"
            " RollingUpdatePolicy or TerminationWaitInSeconds, or remove the tag."
        )
    if pending.config.name == endpoint.active.config.name:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" has the tag {VERDICT_TAG}, and its present configuration'
            f' has the name "{pending.config.name}", too: requests of both could not be counted'
            " apart. Give the new configuration another name."
        )
    return replace(guard, allowance=allowance)

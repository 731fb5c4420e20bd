"""Tags of SageMaker's resources, and the tags that choose Hostelry's own features.

| tag | on | chooses |
| --- | --- | --- |
| `hostelry:zero` | endpoints, components | the answer to requests without a copy |
| `hostelry:pinned` | components | whether copies stay on their instances |
| `hostelry:verdict` | endpoints | whether a verdict on the new fleet decides updates |
"""

from collections.abc import Mapping

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sagemaker.kinds import KIND_WORDS, KINDS, has_name
from hostelry.api.tags import parse_tags, read_tags, tag_list, tags_without, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain.at_zero import AtZero
from hostelry.domain.endpoint import Deployment, Endpoint, UpdateGuard
from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.traffic import Allowance, build_allowance

AT_ZERO_TAG = "hostelry:zero"
AT_ZERO_ANSWERS = {it.value: it for it in AtZero}
PINNED_TAG = "hostelry:pinned"
PIN_ANSWERS = {"true": True, "false": False}
VERDICT_TAG = "hostelry:verdict"
VERDICT_KINDS = (
    "endpoint",
    "endpoint-config",
    "inference-component",
)  # the tag has no meaning on other kinds
ON, OFF = "on", "off"
# An update has no settings on differences of answers, because each request has only one answer.
SETTINGS = ("errors", "latency", "alpha")
EXAMPLE = "errors=0.01 latency=0.25 alpha=0.01"


def get_at_zero(tags: Mapping[str, str]) -> AtZero | None:
    """The tagged choice, or None."""
    value = tags.get(AT_ZERO_TAG)
    if value is None:
        return None
    if value not in AT_ZERO_ANSWERS:
        raise validation_error(
            f'Tag {AT_ZERO_TAG} is "{value}"; it must be {" or ".join(AT_ZERO_ANSWERS)}: requests '
            "wait for a copy, or are answered with AWS's error while there is none."
        )
    return AT_ZERO_ANSWERS[value]


def _write_at_zero(context: CallContext, arn: str, chosen: AtZero | None) -> None:
    scope, state = context.scope, context.state
    for component in state.components.list(scope):
        if component.value.arn == arn and component.value.at_zero is not chosen:
            changed = replace(component.value, at_zero=chosen)
            state.components.put(scope, changed.name, changed, expect=component.version)
    for endpoint in state.endpoints.list(scope):
        if endpoint.value.arn == arn and endpoint.value.at_zero is not chosen:
            moved = replace(endpoint.value, at_zero=chosen)
            state.endpoints.put(scope, moved.name, moved, expect=endpoint.version)


def is_pinned(tags: Mapping[str, str]) -> bool:
    """True if the tags of an inference component pin it. Refuses invalid values."""
    value = tags.get(PINNED_TAG, "false")
    if value not in PIN_ANSWERS:
        raise validation_error(
            f'Tag {PINNED_TAG} is "{value}" on an inference component; it must be'
            f" {' or '.join(PIN_ANSWERS)}."
        )
    return PIN_ANSWERS[value]


def _write_pin(context: CallContext, arn: str, *, pinned: bool) -> None:
    for found in context.state.components.list(context.scope):
        component = found.value
        if component.arn == arn and component.pinned is not pinned:
            changed = replace(component, pinned=pinned)
            context.state.components.put(
                context.scope, component.name, changed, expect=found.version
            )


def parse_allowance(tags: Mapping[str, str]) -> Allowance | None:
    """Parse the limits for a new fleet. None without a verdict. Raises ValidationException."""
    value = tags.get(VERDICT_TAG, OFF)
    words = value.split()
    if words in ([ON], [OFF]):
        return Allowance() if words == [ON] else None
    given = {name: text for name, _, text in (it.partition("=") for it in words)}
    problem = "a setting is given twice" if len(given) < len(words) else "it is empty"
    if words and len(given) == len(words):
        try:
            return build_allowance(given, SETTINGS)
        except ValueError as error:
            problem = str(error)
    raise validation_error(
        f'Tag {VERDICT_TAG} is "{value}": {problem}. It must be {ON}, {OFF}, or settings such as'
        f' "{EXAMPLE}".'
    )


def check_verdict_tag(
    tags: Mapping[str, str], kind: str, *, takes_components: bool = False
) -> None:
    """Refuse an invalid verdict tag, and a verdict tag on a resource without updates to decide.

    `kind` is the kind of the tagged resource in its ARN.
    """
    if VERDICT_TAG not in tags or kind not in VERDICT_KINDS:
        return
    parse_allowance(tags)
    if kind != "endpoint" or takes_components:
        what = "endpoint for inference components" if takes_components else KIND_WORDS[kind]
        raise validation_error(
            f"Tag {VERDICT_TAG} is for endpoints of models, whose updates it decides. What was to"
            f" be tagged: {what}."
        )


def get_guard(context: CallContext, endpoint: Endpoint, pending: Deployment) -> UpdateGuard | None:
    """Build the guard of the update to `pending`, with the limits in the endpoint's tags.

    Raises ValidationException if no step of the update could be decided.
    """
    guard, allowance = pending.guard, parse_allowance(read_tags(context, endpoint.arn))
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


def add_tags(context: CallContext, params: Params) -> Result:
    """AddTags: adds or overwrites. The answer has every tag of the resource."""
    arn = _find_tagged(context, params["ResourceArn"])
    tags = {**read_tags(context, arn), **parse_tags(params["Tags"])}
    _retag(context, arn, tags)
    return {"Tags": tag_list(tags)}


def list_tags(context: CallContext, params: Params) -> Result:
    """ListTags: all on one page, since a resource has at most 50."""
    if params.get("NextToken"):
        raise validation_error("NextToken is not valid for this request: tags fill one page.")
    return {"Tags": tag_list(read_tags(context, _find_tagged(context, params["ResourceArn"])))}


def delete_tags(context: CallContext, params: Params) -> Result:
    """DeleteTags. Missing keys are ignored."""
    arn = _find_tagged(context, params["ResourceArn"])
    _retag(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def _retag(context: CallContext, arn: str, tags: Mapping[str, str]) -> None:
    """Replace the tags of an existing resource, and apply Hostelry's tags."""
    kind = _get_kind(arn)
    hosts = kind in ("endpoint", "inference-component")
    pinned = kind == "inference-component" and is_pinned(tags)
    at_zero = get_at_zero(tags) if hosts else None
    endpoint = context.state.endpoints.get(context.scope, arn.partition("/")[2])
    takes_components = endpoint is not None and endpoint.value.takes_components
    check_verdict_tag(tags, kind, takes_components=takes_components)
    write_tags(context, arn, tags)
    if kind == "inference-component":
        _write_pin(context, arn, pinned=pinned)
    if hosts:
        _write_at_zero(context, arn, at_zero)


def _find_tagged(context: CallContext, arn: str) -> str:
    """The stored form of an existing resource's ARN. Raises ValidationException."""
    kind = _get_kind(arn)
    name = arn.partition("/")[2]
    if kind not in KINDS:
        raise validation_error(
            f'"{arn}" is not a resource that Hostelry can tag; it tags {", ".join(KIND_WORDS)}.'
        )
    stored = context.scope.arn(kind, name)
    is_ours = kind == "endpoint" and is_hidden(name)
    if is_ours or arn.lower() != stored or not has_name(context, kind, name):
        raise validation_error(f'Could not find {KIND_WORDS[kind]} "{arn}".')
    return stored


def _get_kind(arn: str) -> str:
    return arn.partition("sagemaker:")[2].split(":", 2)[-1].partition("/")[0]

"""AddTags, ListTags and DeleteTags of SageMaker."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.refusals import KIND_WORDS
from hostelry.api.sagemaker.at_zero import at_zero_of, write_at_zero
from hostelry.api.sagemaker.component_pin import is_pinned, write_pin
from hostelry.api.sagemaker.verdict_tag import check_verdict_tag
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain.transform_job import is_hidden
from hostelry.store.records import Records


def add_tags(context: CallContext, params: Params) -> Result:
    """AddTags: adds or overwrites; answers every tag the resource has then."""
    arn = existing_arn(context, params["ResourceArn"])
    tags = {**read_tags(context, arn), **tags_of(params["Tags"])}
    retag(context, arn, tags)
    return {"Tags": tag_list(tags)}


def list_tags(context: CallContext, params: Params) -> Result:
    """ListTags: all on one page, since a resource has at most 50."""
    if params.get("NextToken"):
        raise validation_error("NextToken is not valid for this request: tags fill one page.")
    return {"Tags": tag_list(read_tags(context, existing_arn(context, params["ResourceArn"])))}


def delete_tags(context: CallContext, params: Params) -> Result:
    """DeleteTags: keys that the resource does not have are no error."""
    arn = existing_arn(context, params["ResourceArn"])
    retag(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def retag(context: CallContext, arn: str, tags: Mapping[str, str]) -> None:
    """Replace the tags of an existing resource, and apply those that Hostelry reads."""
    kind = kind_of(arn)
    hosts = kind in ("endpoint", "inference-component")
    pinned = kind == "inference-component" and is_pinned(tags)
    at_zero = at_zero_of(tags) if hosts else None
    endpoint = context.state.endpoints.get(context.scope, arn.partition("/")[2])
    takes_components = endpoint is not None and endpoint.value.takes_components
    check_verdict_tag(tags, kind, takes_components=takes_components)
    write_tags(context, arn, tags)
    if kind == "inference-component":
        write_pin(context, arn, pinned=pinned)
    if hosts:
        write_at_zero(context, arn, at_zero)


def existing_arn(context: CallContext, arn: str) -> str:
    """`arn` in the form it is stored under; raises ValidationException where nothing has it."""
    records_of: Mapping[str, Records[Any]] = {
        "model": context.state.models,
        "endpoint-config": context.state.endpoint_configs,
        "endpoint": context.state.endpoints,
        "inference-component": context.state.components,
        "transform-job": context.state.transform_jobs,
        "inference-experiment": context.state.inference_experiments,
    }
    kind = kind_of(arn)
    name = arn.partition("/")[2]
    if kind not in records_of:
        raise validation_error(
            f'"{arn}" is not a resource that Hostelry can tag; it tags {", ".join(KIND_WORDS)}.'
        )
    stored = context.scope.arn(kind, name)
    is_ours = kind == "endpoint" and is_hidden(name)
    if is_ours or arn.lower() != stored or not records_of[kind].has_name(context.scope, name):
        raise validation_error(f'Could not find {KIND_WORDS[kind]} "{arn}".')
    return stored


def kind_of(arn: str) -> str:
    """The kind of resource that an ARN of SageMaker names, as it stands there."""
    return arn.partition("sagemaker:")[2].split(":", 2)[-1].partition("/")[0]

"""ListTagsForResource, TagResource and UntagResource of alarms and dashboards."""

from hostelry.api.cloudwatch.alarm_state import lookup
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.alarm import alarm_arn
from hostelry.domain.dashboard import dashboard_arn, everywhere
from hostelry.scaling.decide.composite import alarm_name


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return {"Tags": tag_list(read_tags(context, existing_arn(context, params["ResourceARN"])))}


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    arn = existing_arn(context, params["ResourceARN"])
    write_tags(context, arn, {**read_tags(context, arn), **tags_of(params["Tags"])})
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource: keys that the resource does not have are no error."""
    arn = existing_arn(context, params["ResourceARN"])
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def existing_arn(context: CallContext, arn: str) -> str:
    """`arn`, of an alarm or a dashboard.

    Raises ResourceNotFoundException or InvalidParameterValue.
    """
    prefix = dashboard_arn(context.scope, "")
    if arn.startswith(prefix):
        name = arn.removeprefix(prefix)
        if context.state.dashboards.get(everywhere(context.scope), name) is None:
            raise ServiceError("ResourceNotFoundException", f'There is no dashboard "{arn}".', 404)
        return arn
    name = alarm_name(arn)
    if name == arn:
        raise ServiceError(
            "InvalidParameterValueException",
            f'"{arn}" is not the ARN of an alarm or a dashboard; nothing else of CloudWatch'
            " has tags here.",
        )
    if arn != alarm_arn(context.scope, name) or lookup(context, name) is None:
        raise ServiceError("ResourceNotFoundException", f'There is no alarm "{arn}".', 404)
    return arn

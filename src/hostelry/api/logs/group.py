"""Log groups and their streams: found, made, listed and deleted. Retention, tags, tokens of pages.

Source: CloudWatch Logs API reference. AWS's own SDK tests and Terraform match the error texts.
"""

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import get_digest
from hostelry.api.tags import read_tags, remove_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import MAX_TAGS
from hostelry.logs.events import LogGroup, LogStream
from hostelry.logs.store import MAX_STREAMS

MS = 1000
MAX_INSTANT_MS = 2**62
INVALID_TOKEN = "The specified nextToken is invalid."
PAGING = frozenset({"nextToken", "limit"})
PAGE_SIZE = 50
STANDARD = "STANDARD"
YEARS = (365, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
RETENTION_DAYS = frozenset((1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 400, 545, *YEARS))
PAGE_SIZE = 50
SEQUENCE_TOKEN = "49039859564242044094540330513837160580000000000000000000"
"""Every PutLogEvents of AWS returns a token, and ignores the token that it gets."""
MAX_KEY, MAX_VALUE = 128, 256


def invalid(message: str) -> ServiceError:
    """The error for an invalid parameter."""
    return ServiceError("InvalidParameterException", message)


def _unsupported(field: str) -> ServiceError:
    return invalid(f"{field} is not supported by this version of Hostelry.")


def _refuse_members(params: Params, fields: Iterable[str]) -> None:
    """Raise `_unsupported` for the first of `fields` that is given and not False."""
    for field in fields:
        if params.get(field):
            raise _unsupported(field)


def _group_not_found() -> ServiceError:
    message = "The specified log group does not exist."
    return ServiceError("ResourceNotFoundException", message)


def group_arn(context: CallContext, name: str) -> str:
    """The ARN of a log group, under which its tags are stored."""
    scope = context.scope
    return f"arn:aws:logs:{scope.region}:{scope.account}:log-group:{name}"


def find_group(context: CallContext, name: str) -> LogGroup:
    """The group of that name. Raises ResourceNotFoundException."""
    group = context.logs.group(context.scope, name)
    if group is None:
        raise _group_not_found()
    return group


def _find_group_by_arn(context: CallContext, arn: str) -> LogGroup:
    """The group of an ARN, with or without ``:*``. Raises ResourceNotFoundException."""
    prefix = group_arn(context, "")
    if not arn.startswith(prefix):
        raise _group_not_found()
    return find_group(context, arn.removeprefix(prefix).removesuffix(":*"))


def find_requested_group(context: CallContext, params: Params) -> LogGroup:
    """The group of logGroupName or logGroupIdentifier, exactly one of which must be given."""
    given = [params[it] for it in ("logGroupName", "logGroupIdentifier") if params.get(it)]
    if len(given) != 1:
        raise invalid("Exactly one of logGroupName and logGroupIdentifier must be given.")
    return _find_identified_group(context, given[0])


def _find_identified_group(context: CallContext, identifier: str) -> LogGroup:
    if identifier.startswith("arn:"):
        return _find_group_by_arn(context, identifier)
    return find_group(context, identifier)


def find_stream(context: CallContext, group: LogGroup, name: str) -> LogStream:
    """The stream of that name. Raises ResourceNotFoundException."""
    stream = context.logs.stream(group, name)
    if stream is None:
        message = "The specified log stream does not exist."
        raise ServiceError("ResourceNotFoundException", message)
    return stream


def now_ms(context: CallContext) -> int:
    """The instant of the call, in milliseconds."""
    return int(context.now * MS)


def clamp_instant_ms(given: int | None, default_ms: int) -> int:
    """An instant of a request within the stored range, or `default_ms`."""
    return default_ms if given is None else min(max(given, 0), MAX_INSTANT_MS)


def build_token(context: CallContext, params: Params, position: Any) -> str:
    """The token to the page at `position`, bound to the filters of the list."""
    text = json.dumps([position, _digest(context, params)])
    return base64.urlsafe_b64encode(text.encode()).decode()


def read_position(context: CallContext, params: Params) -> Any:
    """The position of the request's token, or None.

    Raises InvalidParameterException for a token of another list.
    """
    token = params.get("nextToken")
    if token is None:
        return None
    try:
        position, digest = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        raise invalid(INVALID_TOKEN) from None
    if digest != _digest(context, params) or not _is_position(position):
        raise invalid(INVALID_TOKEN)
    return position


def _is_position(position: Any) -> bool:
    """True if `position` is a pair that the store can look for: a number, and a number or text."""
    if not isinstance(position, list) or len(position) != 2:
        return False
    first, second = position
    small = (it for it in position if isinstance(it, int))
    return (
        isinstance(first, int)
        and isinstance(second, int | str)
        and all(abs(it) < 2**62 for it in small)
    )


def _digest(context: CallContext, params: Params) -> str:
    scope = context.scope
    filters = sorted((name, str(it)) for name, it in params.items() if name not in PAGING)
    return get_digest([scope.account, scope.region, filters])


def create_log_group(context: CallContext, params: Params) -> Result:
    """CreateLogGroup."""
    name = params["logGroupName"]
    if params.get("logGroupClass", STANDARD) != STANDARD:
        raise _unsupported(f"logGroupClass {params['logGroupClass']}")
    _refuse_members(params, ("deletionProtectionEnabled",))
    tags = _check_tags(params.get("tags") or {})
    if context.logs.group(context.scope, name) is not None:
        message = "The specified log group already exists"
        raise ServiceError("ResourceAlreadyExistsException", message)
    write_tags(context, group_arn(context, name), tags)  # may be repeated, unlike the creation
    key_id = params.get("kmsKeyId")
    if not context.logs.create_group(context.scope, name, now_ms(context), key_id):
        raise ServiceError("LimitExceededException", "Resource limit exceeded.")
    return {}


def describe_log_groups(context: CallContext, params: Params) -> Result:
    """DescribeLogGroups. Other accounts have no groups, since accounts are not linked."""
    prefix, part = params.get("logGroupNamePrefix"), params.get("logGroupNamePattern")
    if prefix and part:
        raise invalid(
            "LogGroup name prefix and LogGroup name pattern are mutually exclusive parameters."
        )
    accounts = params.get("accountIdentifiers") or [context.scope.account]
    if context.scope.account not in accounts:
        return {"logGroups": []}
    if params.get("logGroupClass", STANDARD) != STANDARD:
        return {"logGroups": []}
    if params.get("logGroupIdentifiers"):
        named = [_find_identified_group(context, it) for it in params["logGroupIdentifiers"]]
        return {"logGroups": [_describe_group(context, it) for it in named]}
    size = params.get("limit") or PAGE_SIZE
    position = read_position(context, params)
    found = context.logs.groups(
        context.scope,
        prefix=prefix or "",
        part=part or "",
        after="" if position is None else str(position[1]),
        limit=size + 1,
    )
    page = found[:size]
    result: Result = {"logGroups": [_describe_group(context, it) for it in page]}
    if len(found) > size:
        result["nextToken"] = build_token(context, params, [0, page[-1].name])
    return result


def delete_log_group(context: CallContext, params: Params) -> Result:
    """DeleteLogGroup, with its streams, events and tags."""
    group = find_group(context, params["logGroupName"])
    write_tags(context, group_arn(context, group.name), {})
    context.logs.delete_group(group)
    return {}


def put_retention_policy(context: CallContext, params: Params) -> Result:
    """PutRetentionPolicy."""
    days = params["retentionInDays"]
    if days not in RETENTION_DAYS:
        allowed = ", ".join(str(it) for it in sorted(RETENTION_DAYS))
        raise invalid(f"retentionInDays must be one of {allowed}; it is {days}.")
    context.logs.set_retention(find_group(context, params["logGroupName"]), days)
    return {}


def delete_retention_policy(context: CallContext, params: Params) -> Result:
    """DeleteRetentionPolicy: restores the platform's retention."""
    context.logs.set_retention(find_group(context, params["logGroupName"]), None)
    return {}


def _describe_group(context: CallContext, group: LogGroup) -> Result:
    arn = group_arn(context, group.name)
    optional = {"retentionInDays": group.retention_days, "kmsKeyId": group.kms_key_id}
    return {
        "logGroupName": group.name,
        "creationTime": group.created_ms,
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        "storedBytes": group.stored_bytes,
        "logGroupClass": STANDARD,
        "deletionProtectionEnabled": False,
        **{name: it for name, it in optional.items() if it is not None},
    }


def create_log_stream(context: CallContext, params: Params) -> Result:
    """CreateLogStream."""
    group, name = find_group(context, params["logGroupName"]), params["logStreamName"]
    if context.logs.stream(group, name) is not None:
        message = "The specified log stream already exists"
        raise ServiceError("ResourceAlreadyExistsException", message)
    if not context.logs.create_stream(group, name, now_ms(context)):
        raise invalid(f"The log group has {MAX_STREAMS} log streams, which is the limit here.")
    return {}


def delete_log_stream(context: CallContext, params: Params) -> Result:
    """DeleteLogStream, with its events."""
    group = find_group(context, params["logGroupName"])
    context.logs.delete_stream(find_stream(context, group, params["logStreamName"]))
    return {}


def describe_log_streams(context: CallContext, params: Params) -> Result:
    """DescribeLogStreams: by name, or by the instant of the last event."""
    by_last_event = params.get("orderBy") == "LastEventTime"
    if by_last_event and params.get("logStreamNamePrefix"):
        raise invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
    group = find_requested_group(context, params)
    size = params.get("limit") or PAGE_SIZE
    position = read_position(context, params)
    found = context.logs.streams(
        group,
        prefix=params.get("logStreamNamePrefix") or "",
        by_last_event=by_last_event,
        descending=bool(params.get("descending")),
        after=None if position is None else (position[0], str(position[1])),
        limit=size + 1,
    )
    page = found[:size]
    result: Result = {"logStreams": [_describe_stream(context, group, it) for it in page]}
    if len(found) > size:
        last = page[-1]
        key = (last.last_ms or 0) if by_last_event else 0
        result["nextToken"] = build_token(context, params, [key, last.name])
    return result


def _describe_stream(context: CallContext, group: LogGroup, stream: LogStream) -> Result:
    """A stream in AWS's form. On AWS storedBytes is 0 for every stream."""
    instants = {
        "firstEventTimestamp": stream.first_ms,
        "lastEventTimestamp": stream.last_ms,
        "lastIngestionTime": stream.ingested_ms,
    }
    return {
        "logStreamName": stream.name,
        "creationTime": stream.created_ms,
        "uploadSequenceToken": SEQUENCE_TOKEN,
        "arn": f"{group_arn(context, group.name)}:log-stream:{stream.name}",
        "storedBytes": 0,
        **{name: it for name, it in instants.items() if it is not None},
    }


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    return _add_tags(
        context, _find_group_by_arn(context, params["resourceArn"]).name, params["tags"]
    )


def tag_log_group(context: CallContext, params: Params) -> Result:
    """TagLogGroup: adds or overwrites."""
    return _add_tags(context, find_group(context, params["logGroupName"]).name, params["tags"])


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource. Missing keys are ignored."""
    return _remove_tags(
        context, _find_group_by_arn(context, params["resourceArn"]).name, params["tagKeys"]
    )


def untag_log_group(context: CallContext, params: Params) -> Result:
    """UntagLogGroup. Missing keys are ignored."""
    return _remove_tags(context, find_group(context, params["logGroupName"]).name, params["tags"])


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return _list_tags(context, _find_group_by_arn(context, params["resourceArn"]).name)


def list_tags_log_group(context: CallContext, params: Params) -> Result:
    """ListTagsLogGroup."""
    return _list_tags(context, find_group(context, params["logGroupName"]).name)


def _check_tags(given: Mapping[str, str]) -> dict[str, str]:
    for key, value in given.items():
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE:
            raise invalid(f"A tag has a key of 1 to {MAX_KEY} and a value of up to {MAX_VALUE}.")
        if key.lower().startswith("aws:"):
            raise invalid(f'Tag key "{key}" begins with "aws:", which is reserved.')
    return dict(given)


def _add_tags(context: CallContext, name: str, given: Mapping[str, str]) -> Result:
    arn = group_arn(context, name)
    tags = {**read_tags(context, arn), **_check_tags(given)}
    if len(tags) > MAX_TAGS:
        raise ServiceError("TooManyTagsException", f"A log group has at most {MAX_TAGS} tags.")
    write_tags(context, arn, tags)
    return {}


def _remove_tags(context: CallContext, name: str, keys: Collection[str]) -> Result:
    remove_tags(context, group_arn(context, name), keys)
    return {}


def _list_tags(context: CallContext, name: str) -> Result:
    return {"tags": dict(read_tags(context, group_arn(context, name)))}

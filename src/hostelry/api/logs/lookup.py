"""Log groups and streams that a request names, and the errors where there are none.

Source: CloudWatch Logs API reference; texts as AWS's own SDK tests and Terraform's match them.
"""

from collections.abc import Iterable

from hostelry.api.context import CallContext, Params
from hostelry.base.errors import ServiceError
from hostelry.logs.events import LogGroup, LogStream

MS = 1000
MAX_INSTANT_MS = 2**62


def invalid(message: str) -> ServiceError:
    """The error for a parameter that is not valid."""
    return ServiceError("InvalidParameterException", message)


def not_supported(field: str) -> ServiceError:
    """The error for a field that this version does not implement."""
    return invalid(f"{field} is not supported by this version of Hostelry.")


def refuse(params: Params, fields: Iterable[str]) -> None:
    """Raise `not_supported` for the first of `fields` that is given and not False."""
    for field in fields:
        if params.get(field):
            raise not_supported(field)


def group_missing() -> ServiceError:
    """The error for a log group that does not exist."""
    message = "The specified log group does not exist."
    return ServiceError("ResourceNotFoundException", message)


def group_arn(context: CallContext, name: str) -> str:
    """The ARN of a log group, as tags are kept under it."""
    scope = context.scope
    return f"arn:aws:logs:{scope.region}:{scope.account}:log-group:{name}"


def group_named(context: CallContext, name: str) -> LogGroup:
    """The group of that name; raises ResourceNotFoundException."""
    group = context.logs.group(context.scope, name)
    if group is None:
        raise group_missing()
    return group


def group_of_arn(context: CallContext, arn: str) -> LogGroup:
    """The group of an ARN, with or without ``:*``; raises ResourceNotFoundException."""
    prefix = group_arn(context, "")
    if not arn.startswith(prefix):
        raise group_missing()
    return group_named(context, arn.removeprefix(prefix).removesuffix(":*"))


def group_of(context: CallContext, params: Params) -> LogGroup:
    """The group that logGroupName or logGroupIdentifier names, exactly one of which is given."""
    given = [params[it] for it in ("logGroupName", "logGroupIdentifier") if params.get(it)]
    if len(given) != 1:
        raise invalid("Exactly one of logGroupName and logGroupIdentifier must be given.")
    return identified(context, given[0])


def identified(context: CallContext, identifier: str) -> LogGroup:
    """The group of a name or an ARN."""
    if identifier.startswith("arn:"):
        return group_of_arn(context, identifier)
    return group_named(context, identifier)


def stream_named(context: CallContext, group: LogGroup, name: str) -> LogStream:
    """The stream of that name; raises ResourceNotFoundException."""
    stream = context.logs.stream(group, name)
    if stream is None:
        message = "The specified log stream does not exist."
        raise ServiceError("ResourceNotFoundException", message)
    return stream


def now_ms(context: CallContext) -> int:
    """The instant of the call, in milliseconds."""
    return int(context.now * MS)


def instant_ms(given: int | None, default_ms: int) -> int:
    """An instant of a request, within what is stored; `default_ms` where none is given."""
    return default_ms if given is None else min(max(given, 0), MAX_INSTANT_MS)

"""CloudTrail: LookupEvents over the platform's audit trail."""

from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens
from hostelry.audit.lookup import TrailFilter, describe_event
from hostelry.base.errors import ServiceError

PAGE_SIZE = 50
SEARCH_S = 1.0  # of computing per call


def lookup_events(context: CallContext, params: Params) -> Result:
    """LookupEvents: the management events of the caller's account and region, newest first.

    An answer with a token may have fewer events than requested, or none, since a call examines a
    limited number of records.
    """
    wanted = _read_filter(context, params)
    tokens = PageTokens(context, "LookupEvents", params, "InvalidNextTokenException")
    last = tokens.last_position()
    page = context.audit_trail.find(
        wanted,
        params.get("MaxResults") or PAGE_SIZE,
        None if last is None else int(last[0]),
        lambda: context.worked_s() > SEARCH_S,
    )
    described = [describe_event(it) for it in page.lines]
    following = {} if page.before is None else tokens.next_members((page.before, ""))
    return {"Events": [it for it in described if it is not None], **following}


def _read_filter(context: CallContext, params: Params) -> TrailFilter:
    since, until = params.get("StartTime"), params.get("EndTime")
    if since is not None and until is not None and since > until:
        raise _refuse("InvalidTimeRangeException", "StartTime is after EndTime.")
    if params.get("EventCategory") is not None:
        raise _refuse(
            "InvalidEventCategoryException",
            "EventCategory insight: no insights are computed here. Leave it out.",
        )
    attributes: list[Any] = params.get("LookupAttributes") or []
    if len(attributes) > 1:
        raise _refuse(
            "InvalidLookupAttributesException",
            f"LookupAttributes has {len(attributes)} attributes; 1 is the limit.",
        )
    attribute, value = "", ""
    for given in attributes:
        attribute, value = given["AttributeKey"], given["AttributeValue"]
    return TrailFilter(
        account=context.scope.account,
        region=context.scope.region,
        since=since,
        until=until,
        attribute=attribute,
        value=value,
        sources=frozenset({value} if attribute == "EventSource" else ()),
        only_management=True,
    )


def _refuse(code: str, message: str) -> ServiceError:
    return ServiceError(code, message)

"""Look-ups in the audit trail: filters, and events as LookupEvents answers them. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from hostelry.audit.chain import TrailLine
from hostelry.audit.record import ASSUMED_ROLE, ROOT, EventResource
from hostelry.audit.resources import get_name
from hostelry.base.json import decode

ATTRIBUTES = (
    "EventId", "EventName", "ReadOnly", "Username", "ResourceType", "ResourceName", "EventSource",
    "AccessKeyId",
)  # fmt: skip
MAX_EXAMINED = 50_000  # records of one look-up
MANY_OLD = 1000


class FoundIdentity(msgspec.Struct, rename="camel"):
    """The caller of a record that was read."""

    type: str = ""
    principal_id: str = ""
    arn: str = ""
    access_key_id: str = ""
    user_name: str = ""
    invoked_by: str = ""

    @property
    def name(self) -> str:
        """The name by which LookupEvents finds the caller."""
        if self.type == ROOT:
            return self.user_name or "root"
        if self.type == ASSUMED_ROLE:
            return self.principal_id.partition(":")[2]
        return self.user_name or self.invoked_by


class FoundEvent(msgspec.Struct, rename={"event_id": "eventID", "error_code": "errorCode"}):
    """The members of a record by which it is found and listed."""

    event_id: str
    userIdentity: FoundIdentity
    eventName: str
    eventSource: str
    readOnly: bool
    managementEvent: bool
    resources: tuple[EventResource, ...] = ()
    error_code: str = ""


class TrailFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The records that a look-up wants. Empty members want all.

    `since` and `until` are seconds since the epoch, inclusive. `attribute` is one of ATTRIBUTES.
    `sources` are event sources. With `only_management` data events are left out.
    """

    account: str = ""
    region: str = ""
    since: float | None = None
    until: float | None = None
    attribute: str = ""
    value: str = ""
    sources: frozenset[str] = frozenset()
    only_management: bool = False


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records newest first. `before` continues with older ones. None: there are no more."""

    lines: tuple[TrailLine, ...]
    before: int | None


def find_page(
    lines: Iterable[TrailLine],
    wanted: TrailFilter,
    limit: int,
    is_over: Callable[[], bool] = lambda: False,
) -> FoundPage:
    """The first `limit` wanted records of `lines`, which are newest first.

    A page is shorter once MAX_EXAMINED records were examined, or if the time `is_over`. The last
    page ends after MANY_OLD records from before `since`, since records are not exactly in the order
    of their times.
    """
    found: list[TrailLine] = []
    since, num_old = wanted.since, 0
    for examined, line in enumerate(lines, start=1):
        num_old = num_old + 1 if since is not None and line.at < since else 0
        if num_old >= MANY_OLD:
            return FoundPage(lines=tuple(found), before=None)
        if is_wanted(line, wanted):
            found.append(line)
        is_late = examined >= MAX_EXAMINED or (examined % 256 == 0 and is_over())
        if len(found) >= limit or is_late:
            return FoundPage(lines=tuple(found), before=line.number)
    return FoundPage(lines=tuple(found), before=None)


def is_wanted(line: TrailLine, wanted: TrailFilter) -> bool:
    """Whether a record passes the filter."""
    if wanted.account and line.account != wanted.account:
        return False
    if wanted.region and line.region != wanted.region:
        return False
    if wanted.since is not None and line.at < wanted.since:
        return False
    if wanted.until is not None and line.at > wanted.until:
        return False
    if wanted.sources and line.source not in wanted.sources:
        return False
    if not (wanted.attribute or wanted.only_management):
        return True
    if wanted.attribute == "EventSource" and line.source != wanted.value:
        return False
    event = read_event(line)
    if event is None or (wanted.only_management and not event.managementEvent):
        return False
    return not wanted.attribute or wanted.value in _get_values(event, wanted.attribute)


def read_event(line: TrailLine) -> FoundEvent | None:
    """The members of a record's event. None if it has another form."""
    try:
        return decode(bytes(line.event), FoundEvent)
    except msgspec.MsgspecError:
        return None


def describe_event(line: TrailLine) -> dict[str, Any] | None:
    """A record as LookupEvents lists it."""
    event = read_event(line)
    if event is None:
        return None
    caller = event.userIdentity
    optional: Mapping[str, str] = {"AccessKeyId": caller.access_key_id, "Username": caller.name}
    return {
        "EventId": event.event_id,
        "EventName": event.eventName,
        "ReadOnly": _get_truth(event.readOnly),
        "EventTime": line.at,
        "EventSource": event.eventSource,
        "Resources": [
            {"ResourceType": named.type, "ResourceName": get_name(named.ARN)}
            for named in event.resources
        ],
        "CloudTrailEvent": bytes(line.event).decode(),
        **{name: it for name, it in optional.items() if it},
    }


def _get_values(event: FoundEvent, attribute: str) -> set[str]:
    caller, resources = event.userIdentity, event.resources
    match attribute:
        case "EventId":
            return {event.event_id}
        case "EventName":
            return {event.eventName}
        case "ReadOnly":
            return {_get_truth(event.readOnly)}
        case "Username":
            return {caller.name}
        case "AccessKeyId":
            return {caller.access_key_id}
        case "EventSource":
            return {event.eventSource}
        case "ResourceType":
            return {it.type for it in resources}
    names = {it.ARN for it in resources} | {get_name(it.ARN) for it in resources}
    return names | {it.rpartition("/")[2] for it in names}


def _get_truth(value: bool) -> str:
    return "true" if value else "false"

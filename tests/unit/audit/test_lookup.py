"""Look-ups: filters, pages, and the time that one may take."""

from collections.abc import Sequence

import msgspec
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, OTHER, OWNER, call_event

from hostelry.audit.acts import AuditEntry, build_act_event, read_act
from hostelry.audit.chain import ChainHead, NewRecord, TrailLine, add_record, parse_line
from hostelry.audit.lookup import MANY_OLD, TrailFilter, describe_event, find_page
from hostelry.audit.record import TrailEvent
from hostelry.audit.resources import build_resources

MODEL = f"arn:aws:sagemaker:us-east-1:{OWNER[0]}:model/chat"


def lines(*events: TrailEvent) -> list[TrailLine]:
    """The records, newest first."""
    found, head = [], ChainHead()
    for number, event in enumerate(events, start=1):
        record = NewRecord(
            at=float(number),
            account=event.recipient_account_id,
            region=event.aws_region,
            source=event.event_source,
            event=msgspec.json.encode(event),
        )
        stored = add_record(KEY, head, record)
        head = stored.head
        found.append(parse_line(stored.line))
    return found[::-1]


ACT = AuditEntry(at=5.0, who="user ada", act="restart", target="t", outcome="accepted")
TRAIL = lines(
    call_event(1, "CreateModel", resources=build_resources([MODEL], OWNER[0])),
    call_event(2, "ListModels"),
    call_event(3, "CreateModel", OTHER),
    call_event(4, "SendMessage", service="sqs"),
    build_act_event(ACT, OWNER, "event-5"),
    call_event(6, "ListModels", region="eu-west-1"),
)  # fmt: skip


def numbers(found: Sequence[TrailLine]) -> list[int]:
    return [it.number for it in found]


def by(attribute: str, value: str) -> TrailFilter:
    return TrailFilter(attribute=attribute, value=value)


@cases(
    "wanted, found",
    case("all", TrailFilter(), [6, 5, 4, 3, 2, 1]),
    case("an account's", TrailFilter(account=OTHER[0]), [3]),
    case("a region's", TrailFilter(region="eu-west-1"), [6]),
    case("since a time", TrailFilter(since=4.0), [6, 5, 4]),
    case("until a time", TrailFilter(until=2.0), [2, 1]),
    case("at one time", TrailFilter(since=3.0, until=3.0), [3]),
    case("without data events", TrailFilter(only_management=True), [6, 5, 3, 2, 1]),
    case("by source", TrailFilter(sources=frozenset({"sqs.amazonaws.com"})), [4]),
    case("by event name", by("EventName", "CreateModel"), [3, 1]),
    case("by event id", by("EventId", "event-2"), [2]),
    case("by source as an attribute", by("EventSource", "sqs.amazonaws.com"), [4]),
    case("reads", by("ReadOnly", "true"), [6, 2]),
    case("writes", by("ReadOnly", "false"), [5, 4, 3, 1]),
    case("by resource name", by("ResourceName", "chat"), [1]),
    case("by resource ARN", by("ResourceName", MODEL), [1]),
    case("by resource type", by("ResourceType", "AWS::SageMaker::Model"), [1]),
    case("by key", by("AccessKeyId", "AKIAEXAMPLE"), [6, 4, 3, 2, 1]),
    case("by a person", by("Username", "user ada"), [5]),
    case("by the root", by("Username", "root"), [6, 4, 3, 2, 1]),
    case("by a value that none has", by("EventName", "createmodel"), []),
)  # fmt: skip
def test_a_look_up_finds_the_wanted_records(wanted: TrailFilter, found: list[int]) -> None:
    page = find_page(TRAIL, wanted, 50)
    assert numbers(page.lines) == found
    assert page.before is None


def test_pages_continue_where_the_last_one_ended() -> None:
    page = find_page(TRAIL, TrailFilter(account=OWNER[0]), 2)
    assert (numbers(page.lines), page.before) == ([6, 5], 5)
    rest = [it for it in TRAIL if it.number < 5]
    page = find_page(rest, TrailFilter(account=OWNER[0]), 2)
    assert (numbers(page.lines), page.before) == ([4, 2], 2)


def test_a_look_up_ends_after_its_time() -> None:
    many = [TRAIL[5]] * 300
    page = find_page(many, TrailFilter(account=OTHER[0]), 50, lambda: True)
    assert (page.lines, page.before) == ((), 1)


@cases(
    "num_old, found",
    case("a few, for example acts of an earlier version", MANY_OLD - 1, [6, 5, 4, 3, 2, 1] * 2),
    case("many", MANY_OLD, [6, 5, 4, 3, 2, 1]),
)
def test_a_look_up_ends_after_many_records_that_are_too_old(num_old: int, found: list[int]) -> None:
    old = msgspec.structs.replace(TRAIL[0], at=-100.0)
    page = find_page([*TRAIL, *[old] * num_old, *TRAIL], TrailFilter(since=1.0), 50)
    assert (numbers(page.lines), page.before) == (found, None)


def test_an_event_is_listed_as_lookup_events_does() -> None:
    shown = describe_event(TRAIL[5])
    assert shown is not None
    text = shown.pop("CloudTrailEvent")
    assert msgspec.json.decode(text)["eventID"] == "event-1"
    assert shown == {
        "EventId": "event-1",
        "EventName": "CreateModel",
        "ReadOnly": "false",
        "EventTime": 1.0,
        "EventSource": "sagemaker.amazonaws.com",
        "Resources": [{"ResourceType": "AWS::SageMaker::Model", "ResourceName": "chat"}],
        "AccessKeyId": "AKIAEXAMPLE",
        "Username": "root",
    }


def test_an_act_is_read_back_from_its_record() -> None:
    given = AuditEntry(
        at=7.5, who="user ada", act="drain", target="i-1", outcome="refused: no", endpoint="chat"
    )
    event = msgspec.json.encode(build_act_event(given, OWNER, "event-1"))
    assert read_act(event, 7.5) == given
    assert read_act(msgspec.json.encode(call_event()), 1.0) is None

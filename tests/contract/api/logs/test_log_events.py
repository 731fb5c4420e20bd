from collections.abc import Callable
from typing import Any

import boto3
import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope
from hostelry.logs.store import BEGIN, END, EventSearch, LogStore

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def logs(api: Api) -> Call:
    def logs(operation: str, **params: Any) -> dict[str, Any]:
        return api.call(operation, "logs", **params)

    logs("CreateLogGroup", logGroupName="g")
    for name in ("s", "t"):
        logs("CreateLogStream", logGroupName="g", logStreamName=name)
    return logs


def put(logs: Call, *events: tuple[int, str], stream: str = "s") -> dict[str, Any]:
    return logs(
        "PutLogEvents",
        logGroupName="g",
        logStreamName=stream,
        logEvents=[{"timestamp": NOW_MS + at, "message": text} for at, text in events],
    )


def get(logs: Call, **params: Any) -> dict[str, Any]:
    return logs("GetLogEvents", logGroupName="g", logStreamName="s", **params)


def messages(answer: dict[str, Any]) -> list[str]:
    return [it["message"] for it in answer["events"]]


def test_a_stream_is_read_from_its_head_to_its_end_and_on(logs: Call) -> None:
    put(logs, *[(number, f"{number}") for number in range(5)])
    page = get(logs, startFromHead=True, limit=2)
    assert page["events"][0] == {"timestamp": NOW_MS, "message": "0", "ingestionTime": NOW_MS}
    seen = messages(page)
    while True:
        token = page["nextForwardToken"]
        page = get(logs, nextToken=token, limit=2)
        seen += messages(page)
        if page["nextForwardToken"] == token:
            break
    assert seen == ["0", "1", "2", "3", "4"]
    put(logs, (9, "new"))
    assert messages(get(logs, nextToken=token)) == ["new"]
    assert messages(get(logs, nextToken=page["nextBackwardToken"], limit=2)) == ["3", "4"]


def test_a_stream_is_read_from_its_end_backwards(logs: Call) -> None:
    put(logs, *[(number, f"{number}") for number in range(5)])
    page = get(logs, limit=2)
    seen: list[str] = []
    while messages(page):
        seen = [*messages(page), *seen]
        token = page["nextBackwardToken"]
        page = get(logs, nextToken=token, limit=2)
    assert seen == ["0", "1", "2", "3", "4"]
    assert page["nextBackwardToken"] == token


def test_an_empty_stream_has_a_token_to_come_back_with(logs: Call) -> None:
    page = get(logs, startFromHead=True)
    again = get(logs, nextToken=page["nextForwardToken"])
    assert (again["events"], again["nextForwardToken"]) == ([], page["nextForwardToken"])
    put(logs, (0, "first"))
    assert messages(get(logs, nextToken=page["nextForwardToken"])) == ["first"]


@cases(
    "params, expected",
    case("from an instant on", {"startTime": NOW_MS + 1}, ["1", "2"]),
    case("to an instant, without it", {"endTime": NOW_MS + 1}, ["0"]),
    case("far ahead", {"startTime": 2**63 - 1}, []),
    case("to the end of time", {"endTime": 2**63 - 1}, ["0", "1", "2"]),
)
def test_a_range_of_a_stream(logs: Call, params: dict[str, int], expected: list[str]) -> None:
    put(logs, (0, "0"), (1, "1"), (2, "2"))
    assert messages(get(logs, **params)) == expected


def test_a_page_has_at_most_a_megabyte(logs: Call) -> None:
    for number in range(3):
        put(logs, (number, f"{number}" * 700_000))
    assert [it[0] for it in messages(get(logs))] == ["2"]
    assert [it[0] for it in messages(get(logs, startFromHead=True))] == ["0"]
    page = logs("FilterLogEvents", logGroupName="g")
    assert len(page["events"]) == 2
    rest = logs("FilterLogEvents", logGroupName="g", nextToken=page["nextToken"])
    assert [it[0] for it in messages(rest)] == ["2"]


@cases(
    "params, expected",
    case("all streams by time", {}, ["a 0", "b 1", "a 2", "b 3"]),
    case("a stream", {"logStreamNames": ["t"]}, ["b 1", "b 3"]),
    case("a prefix", {"logStreamNamePrefix": "s"}, ["a 0", "a 2"]),
    case("a pattern", {"filterPattern": "b -3"}, ["b 1"]),
    case("both ends count", {"startTime": NOW_MS + 1, "endTime": NOW_MS + 2}, ["b 1", "a 2"]),
    case("said again", {"interleaved": True, "startFromHead": True}, None),
    case("after all of it", {"startFromHead": False, "startTime": 1_704_067_200_000}, []),
    case("newest first", {"startFromHead": False}, ["b 3", "a 2", "b 1", "a 0"]),
)
def test_a_search(logs: Call, params: dict[str, Any], expected: list[str] | None) -> None:
    put(logs, (0, "a 0"), (2, "a 2"))
    put(logs, (1, "b 1"), (3, "b 3"), stream="t")
    expected = ["a 0", "b 1", "a 2", "b 3"] if expected is None else expected
    assert messages(logs("FilterLogEvents", logGroupName="g", **params)) == expected
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:  # and the same by ones
        page = logs("FilterLogEvents", logGroupName="g", limit=1, **params, **token)
        seen += messages(page)
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert seen == expected


def test_ids_of_events_are_unique(logs: Call) -> None:
    put(logs, (0, "x"), (0, "x"), (0, "x"))
    events = logs("FilterLogEvents", logGroupName="g")["events"]
    assert len({it["eventId"] for it in events}) == 3


def test_events_too_old_and_too_new_are_left_out_and_named(logs: Call) -> None:
    answer = put(logs, (2 * HOUR_MS, "ahead"), (2 * HOUR_MS + 1, "too far"))
    assert answer["rejectedLogEventsInfo"] == {"tooNewLogEventStartIndex": 1}
    answer = put(logs, (-14 * DAY_MS - 1, "too old"), (-14 * DAY_MS, "old"))
    assert answer["rejectedLogEventsInfo"] == {"tooOldLogEventEndIndex": 1}
    logs("PutRetentionPolicy", logGroupName="g", retentionInDays=1)
    answer = put(logs, (-DAY_MS - 1, "expired"), (-DAY_MS, "kept"))
    assert answer["rejectedLogEventsInfo"] == {"expiredLogEventEndIndex": 1}
    assert messages(get(logs)) == ["old", "kept", "ahead"]
    assert "rejectedLogEventsInfo" not in put(logs, (0, "now"))


@cases(
    "events, cause",
    case("order", [(1, "x"), (0, "y")], "must be in chronological order"),
    case("span", [(-DAY_MS - 1, "x"), (0, "y")], "span more than 24 hours"),
    case("an event", [(0, "x" * 1_048_576)], "Log event too large: 1048602"),
    case("a batch", [(0, "x" * 600_000)] * 2, "Upload too large: 1200052"),
)
def test_a_batch_that_is_refused(logs: Call, events: list[tuple[int, str]], cause: str) -> None:
    with pytest.raises(ServiceError, match=cause) as refused:
        put(logs, *events)
    assert refused.value.code == "InvalidParameterException"
    assert messages(get(logs)) == []


@pytest.mark.parametrize("token", ["x", "f/1", "z/" + "1" * 38 + "/s"])
def test_a_token_that_is_none(logs: Call, token: str) -> None:
    with pytest.raises(ServiceError, match="The specified nextToken is invalid"):
        get(logs, nextToken=token)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_search_examines_so_much_at_a_time(
    logs: Call, log_store: LogStore, scope: Scope, newest_first: bool
) -> None:
    put(logs, *[(number, f"{number}") for number in range(10)])
    group = log_store.group(scope, "g")
    assert group is not None
    search = EventSearch(
        has_stream=lambda _: True,
        selects=lambda message: message in "09",
        limit=100,
        max_bytes=100,
        max_rows=4,
        newest_first=newest_first,
    )
    pages: list[list[str]] = []
    start, end = BEGIN, END
    while True:
        events, place = log_store.search(group, search, start, end)
        pages.append([it.message for it in events])
        if place is None:
            break
        start, end = (start, place) if newest_first else (place, end)
    assert pages == ([["9"], [], ["0"]] if newest_first else [["0"], [], ["9"]])


def test_boto3_reads_what_it_put(answer: Callable[..., Any]) -> None:
    client = boto3.client(
        "logs",
        region_name="us-west-2",
        endpoint_url="http://localhost",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    client.meta.events.register("before-send.cloudwatch-logs", answer)
    client.create_log_group(logGroupName="g")
    client.create_log_stream(logGroupName="g", logStreamName="s/\u00e9")
    event = {"timestamp": NOW_MS, "message": '{"level": "error", "text": "\u00e9\\u0000"}'}
    client.put_log_events(logGroupName="g", logStreamName="s/\u00e9", logEvents=[event])
    pages = client.get_paginator("filter_log_events").paginate(
        logGroupName="g", filterPattern='{ $.level = "err*" }'
    )
    found = [it for page in pages for it in page["events"]]
    assert [(it["logStreamName"], it["message"]) for it in found] == [
        ("s/\u00e9", event["message"])
    ]
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.filter_log_events(logGroupName="none")
    with pytest.raises(client.exceptions.ClientError, match="logs:StartLiveTail"):
        client.start_live_tail(
            logGroupIdentifiers=["arn:aws:logs:us-west-2:123456789012:log-group:g"]
        )

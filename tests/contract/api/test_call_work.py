"""Operations whose work a client's values decide: it has a limit, and no lock is held for it."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.api.conftest import Work

from hostelry.api.context import MAX_WORK_S
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.store.records import State

Call = Callable[..., dict[str, Any]]
PATTERN = json.dumps({"detail": {"a": [1]}})
EVENT = {
    "id": "1",
    "account": "1",
    "source": "s",
    "time": "2026-01-01T00:00:00Z",
    "region": "r",
    "resources": [],
    "detail-type": "d",
    "detail": {"a": [0]},
}
NOW_MS = int(ManualClock().now() * 1000)
TRIED = {"EventPattern": PATTERN, "Event": json.dumps(EVENT)}


def test_trying_a_pattern_waits_for_no_change(call: Call, state: State) -> None:
    found: list[Any] = []
    trying = threading.Thread(
        target=lambda: found.append(call("TestEventPattern", "events", **TRIED)), daemon=True
    )
    with state.writing:
        trying.start()
        trying.join(30.0)
        assert found == [{"Result": False}]


def test_work_that_takes_too_long_ends(call: Call, work: Work) -> None:
    topic = call("CreateTopic", "sns", Name="t")["TopicArn"]
    policy = {"FilterPolicy": '{"a": [1]}', "FilterPolicyScope": "MessageBody"}
    call("CreateQueue", "sqs", QueueName="q")
    queue = "arn:aws:sqs:us-west-2:123456789012:q"
    call("Subscribe", "sns", TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes=policy)
    call("PutRule", "events", Name="r", EventPattern=PATTERN)
    call("CreateLogGroup", "logs", logGroupName="g")
    call("CreateLogStream", "logs", logGroupName="g", logStreamName="s")
    event = {"timestamp": NOW_MS, "message": '{"a": 1}'}
    call("PutLogEvents", "logs", logGroupName="g", logStreamName="s", logEvents=[event])
    entry = {"Source": "s", "DetailType": "d", "Detail": "{}"}

    calls: dict[str, Callable[[], Any]] = {
        "a pattern": lambda: call("TestEventPattern", "events", **TRIED),
        "a message": lambda: call("Publish", "sns", TopicArn=topic, Message='{"a": [2]}'),
        "a search": lambda: call(
            "FilterLogEvents", "logs", logGroupName="g", filterPattern="{ $.a = 1 }"
        ),
    }
    for each in calls.values():
        each()
    work.done_s, work.each_s = 0.0, MAX_WORK_S * 0.8
    for name, each in calls.items():
        work.done_s = 0.0
        with pytest.raises(ServiceError) as caught:
            each()
        assert "computed for more than" in caught.value.message, name
    work.done_s = 0.0
    [put] = call("PutEvents", "events", Entries=[entry])["Entries"]
    assert put["ErrorCode"] == "ThrottlingException"


def test_a_long_search_is_continued_by_its_token(call: Call, work: Work) -> None:
    call("CreateLogGroup", "logs", logGroupName="g")
    call("CreateLogStream", "logs", logGroupName="g", logStreamName="s")
    events = [{"timestamp": NOW_MS + number, "message": str(number)} for number in range(1, 5)]
    call("PutLogEvents", "logs", logGroupName="g", logStreamName="s", logEvents=events)
    work.each_s = 0.6
    pages: list[list[str]] = []
    token: dict[str, str] = {}
    for _ in range(len(events)):
        work.done_s = 0.0
        page = call("FilterLogEvents", "logs", logGroupName="g", **token)
        pages += [[it["message"] for it in page["events"]]]
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert [it for page in pages for it in page] == ["1", "2", "3", "4"]
    assert len(pages) > 1

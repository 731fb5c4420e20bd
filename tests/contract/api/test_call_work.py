"""Operations whose work a client's values decide: it has a limit, and no lock is held for it."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.api.rig import Api

from hostelry.api.context import MAX_WORK_S
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError

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


def test_trying_a_pattern_waits_for_no_change(api: Api) -> None:
    found: list[Any] = []
    trying = threading.Thread(
        target=lambda: found.append(api.call("TestEventPattern", "events", **TRIED)), daemon=True
    )
    with api.state.writing:
        trying.start()
        trying.join(30.0)
        assert found == [{"Result": False}]


def test_work_that_takes_too_long_ends(api: Api) -> None:
    topic = api.call("CreateTopic", "sns", Name="t")["TopicArn"]
    policy = {"FilterPolicy": '{"a": [1]}', "FilterPolicyScope": "MessageBody"}
    api.call("CreateQueue", "sqs", QueueName="q")
    queue = "arn:aws:sqs:us-west-2:123456789012:q"
    api.call("Subscribe", "sns", TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes=policy)
    api.call("PutRule", "events", Name="r", EventPattern=PATTERN)
    api.call("CreateLogGroup", "logs", logGroupName="g")
    api.call("CreateLogStream", "logs", logGroupName="g", logStreamName="s")
    event = {"timestamp": NOW_MS, "message": '{"a": 1}'}
    api.call("PutLogEvents", "logs", logGroupName="g", logStreamName="s", logEvents=[event])
    entry = {"Source": "s", "DetailType": "d", "Detail": "{}"}

    calls: dict[str, Callable[[], Any]] = {
        "a pattern": lambda: api.call("TestEventPattern", "events", **TRIED),
        "a message": lambda: api.call("Publish", "sns", TopicArn=topic, Message='{"a": [2]}'),
        "a search": lambda: api.call(
            "FilterLogEvents", "logs", logGroupName="g", filterPattern="{ $.a = 1 }"
        ),
    }
    for each in calls.values():
        each()
    api.work.done_s, api.work.each_s = 0.0, MAX_WORK_S * 0.8
    for name, each in calls.items():
        api.work.done_s = 0.0
        with pytest.raises(ServiceError) as caught:
            each()
        assert "computed for more than" in caught.value.message, name
    api.work.done_s = 0.0
    [put] = api.call("PutEvents", "events", Entries=[entry])["Entries"]
    assert put["ErrorCode"] == "ThrottlingException"


def test_a_long_search_is_continued_by_its_token(api: Api) -> None:
    api.call("CreateLogGroup", "logs", logGroupName="g")
    api.call("CreateLogStream", "logs", logGroupName="g", logStreamName="s")
    events = [{"timestamp": NOW_MS + number, "message": str(number)} for number in range(1, 5)]
    api.call("PutLogEvents", "logs", logGroupName="g", logStreamName="s", logEvents=events)
    api.work.each_s = 0.6
    pages: list[list[str]] = []
    token: dict[str, str] = {}
    for _ in range(len(events)):
        api.work.done_s = 0.0
        page = api.call("FilterLogEvents", "logs", logGroupName="g", **token)
        pages += [[it["message"] for it in page["events"]]]
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert [it for page in pages for it in page] == ["1", "2", "3", "4"]
    assert len(pages) > 1

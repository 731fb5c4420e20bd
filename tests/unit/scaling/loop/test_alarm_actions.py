"""Notification of web addresses of alarms."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.unit.scaling.loop.alarm_rig import ALARM, HOOK, OK, TOPIC, Rig, rule_of

from hostelry.base.errors import TerminalError
from hostelry.domain.alarm import AlarmActions
from hostelry.domain.metric import MetricQuery
from hostelry.scaling.decide.alarm_events import TargetKind, get_target_kind
from hostelry.scaling.loop.alarm_actions import DELAYS_S, AddressError, Addresses, AddressFile

POLICY_ARN = (
    "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:1:resource/sagemaker/"
    "endpoint/chat/variant/all:policyName/p"
)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (POLICY_ARN, TargetKind.POLICY),
        (TOPIC, TargetKind.TOPIC),
        (TOPIC + ".fifo", TargetKind.TOPIC),
        (HOOK, TargetKind.ADDRESS),
        ("https://user@h.example:8443/a?b=c", TargetKind.ADDRESS),
        ("http://[::1]:80/", TargetKind.ADDRESS),
        ("http://", None),
        ("http://a b/", None),
        ("http://a:99999/", None),
        ("http://a\n/", None),
        ("http://[", None),
        ("file:///etc/passwd", None),
        ("arn:aws:lambda:us-west-2:123456789012:function:f", None),
        ("arn:aws:automate:us-west-2:ec2:stop", None),
        ("arn:aws:sns:us-west-2:1:alerts", None),
        (POLICY_ARN.replace("sagemaker", "ecs"), None),
        ("", None),
    ],
)
def test_what_an_action_is(action: str, kind: TargetKind | None) -> None:
    assert get_target_kind(action) is kind


def notified(rig: Rig, **fields: Any) -> None:
    rig.put(actions=AlarmActions(alarm=(fields.pop("action", HOOK),)), **fields)
    rig.sample(9.0)
    rig.notify(rig.look_for(12))


def test_a_notification_has_the_envelope_of_sns() -> None:
    rig = Rig()
    notified(rig, num=1)
    ((address, headers, body),) = rig.web.posted
    assert address == HOOK
    assert headers["x-amz-sns-message-type"] == "Notification"
    envelope = json.loads(body)
    # Amazon SNS Developer Guide, "HTTP/HTTPS notification JSON format".
    assert {"Type", "MessageId", "TopicArn", "Subject", "Message", "Timestamp"} <= set(envelope)
    assert envelope["Type"] == "Notification"
    assert envelope["Subject"] == 'ALARM: "high" in us-west-2'
    message = json.loads(envelope["Message"])
    assert message["AlarmName"] == "high"
    assert message["NewStateValue"] == "ALARM"
    assert message["OldStateValue"] == "INSUFFICIENT_DATA"
    assert message["AWSAccountId"] == "123456789012"
    assert message["NewStateReason"].startswith("Threshold Crossed: 1 out of the last 1")
    assert message["Trigger"] == {
        "MetricName": "Load",
        "Namespace": "Own",
        "Dimensions": [],
        "StatisticType": "Statistic",
        "Statistic": "MAXIMUM",
        "Unit": None,
        "Period": 10,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 5.0,
        "TreatMissingData": "missing",
        "EvaluateLowSampleCountPercentile": "",
    }


def test_a_notification_of_an_expression_has_its_metrics() -> None:
    rig = Rig()
    queries = (
        MetricQuery(id="m1", stat=rule_of().stat, return_data=False),
        MetricQuery(id="e1", expression="m1 * 2"),
    )
    notified(rig, stat=None, queries=queries)
    message = json.loads(json.loads(rig.web.posted[0][2])["Message"])
    assert [it["Id"] for it in message["Trigger"]["Metrics"]] == ["m1", "e1"]
    assert message["Trigger"]["Metrics"][0]["MetricStat"]["Stat"] == "Maximum"


def test_a_notification_of_a_composite_has_its_rule() -> None:
    rig = Rig()
    rig.put_composite("both", "TRUE")
    rig.notify(rig.look())
    envelope = json.loads(rig.web.posted[0][2])
    assert json.loads(envelope["Message"])["AlarmRule"] == "TRUE"


@cases(
    "answers, num, is_done",
    case("an error of the server is tried again", [500, 503, 200], 3, True),
    case("so is nobody there", [httpx.ConnectError("nobody"), 204], 2, True),
    case("and a hang", [TimeoutError(), 200], 2, True),
    case("and too many requests", [429, 200], 2, True),
    case("a refusal is final", [404], 1, False),
    case("a redirect is not followed", [302], 1, False),
    case("the tries are bounded", [500] * 9, 1 + len(DELAYS_S), False),
    case("an address that cannot be read", [httpx.InvalidURL("odd")] * 9, 5, False),
)
def test_addresses_are_tried_a_few_times(
    answers: list[int | Exception], num: int, is_done: bool
) -> None:
    rig = Rig()
    rig.web.answers = answers
    notified(rig)
    assert len(rig.web.posted) == num
    word = "Successfully executed" if is_done else "Failed to execute"
    assert rig.history()[0] == f"{word} action {HOOK}"
    assert rig.alarm().status.acted_at is not None, "a failure is notified, not repeated for ever"
    found = rig.state.alarm_histories.list()[0].value.items[0]
    assert json.loads(found.data)["actionState"] == ("Succeeded" if is_done else "Failed")


def test_an_unknown_topic_is_in_the_history() -> None:
    rig = Rig()
    notified(rig, action=TOPIC)
    assert rig.web.posted == []
    assert rig.history()[0] == f"Failed to execute action {TOPIC}"
    data = json.loads(rig.state.alarm_histories.list()[0].value.items[0].data)
    assert "actions.toml" in data["error"]


def test_a_passed_state_is_notified_and_the_present_one_stays_pending() -> None:
    rig = Rig()
    rig.put(actions=AlarmActions(alarm=(HOOK,), ok=(HOOK,)))
    rig.sample(9.0)
    first = rig.look_for(12)
    rig.force("high", OK)
    rig.notify(first)
    assert rig.alarm().status.acted_at is None
    assert [it.status.state for it in rig.look()] == [OK]


def test_an_alarm_that_is_gone_is_notified_all_the_same() -> None:
    rig = Rig()
    rig.put(actions=AlarmActions(alarm=(HOOK,)))
    rig.sample(9.0)
    alarms = rig.look_for(12)
    found = rig.state.metric_alarms.list()[0]
    rig.state.metric_alarms.delete(found.value.scope, "high", expect=found.version)
    rig.notify(alarms)
    assert len(rig.web.posted) == 1
    assert rig.state.metric_alarms.list() == []


def test_one_state_is_notified_once_at_a_time() -> None:
    rig = Rig()
    rig.put(actions=AlarmActions(alarm=(HOOK,)))
    rig.sample(9.0)
    (alarm, *_) = rig.look_for(12)
    rig.notify([alarm, alarm, alarm])
    assert len(rig.web.posted) == 1
    assert alarm.status.state is ALARM


GOOD = """
[topics]
alerts = "http://127.0.0.1:1/a"
"arn:aws:sns:us-west-2:123456789012:pages" = ["https://a.example/", "https://b.example/"]
"""


def test_topics_are_found_by_name_or_arn(tmp_path: Path) -> None:
    path = tmp_path / "actions.toml"
    addresses = AddressFile(path)
    with pytest.raises(AddressError, match=r"\[topics\]"):
        addresses.of(TOPIC)
    path.write_text(GOOD)
    assert addresses.of(TOPIC) == ("http://127.0.0.1:1/a",)
    assert len(addresses.of("arn:aws:sns:us-west-2:123456789012:pages")) == 2
    with pytest.raises(AddressError):
        addresses.of("arn:aws:sns:eu-west-1:123456789012:pages")
    assert addresses.of(HOOK) == (HOOK,)


def test_a_broken_file_leaves_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "actions.toml"
    path.write_text(GOOD)
    addresses = AddressFile(path)
    assert addresses.of(TOPIC)
    path.write_text("[topics")
    assert addresses.of(TOPIC) == ("http://127.0.0.1:1/a",)
    path.unlink()
    with pytest.raises(AddressError):
        addresses.of(TOPIC)


@pytest.mark.parametrize(
    "text",
    [
        "topics = 3",
        "[topics]\na = 3",
        "[topics]\na = []",
        '[topics]\na = ["ftp://a"]',
        "[topics]\na = [3]",
        "[webhooks]\nallow = 3",
        '[webhooks]\nallow = ["here"]',
        "\x00",
        "a = [",
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_a_reason(tmp_path: Path, text: str) -> None:
    path = tmp_path / "actions.toml"
    path.write_text(text)
    with pytest.raises(TerminalError, match=r"actions\.toml"):
        Addresses.load(path)


def test_an_operator_may_allow_some_addresses_only(tmp_path: Path) -> None:
    path = tmp_path / "actions.toml"
    path.write_text('[webhooks]\nallow = ["http://127.0.0.1:9", "https://hooks.example/x"]\n')
    addresses = Addresses.load(path)
    assert addresses.of(HOOK) == (HOOK,)
    assert addresses.of("https://hooks.example:443/any")
    for other in (
        "http://127.0.0.1:10/",
        "http://127.0.0.1:9@evil.example/",
        "http://hooks.example/",
        "https://hooks.example.evil.example/",
    ):
        with pytest.raises(AddressError, match="allow"):
            addresses.of(other)


@pytest.mark.parametrize("addresses", [{}, {"alerts": [HOOK]}], ids=["none", "one"])
def test_an_sns_topic_gets_the_message_besides_the_operators_addresses(
    addresses: dict[str, list[str]],
) -> None:
    rig = Rig(topics=addresses)
    rig.sns_topics.add(TOPIC)
    notified(rig, action=TOPIC)
    ((topic, subject, message, message_id),) = rig.published
    assert (topic, subject) == (TOPIC, 'ALARM: "high" in us-west-2')
    assert json.loads(message)["NewStateValue"] == "ALARM"
    assert len(rig.web.posted) == len(addresses)
    for _, headers, _ in rig.web.posted:
        assert headers["x-amz-sns-message-id"] == message_id


def test_origins_that_need_no_confirmation_and_the_folder_of_files(tmp_path: Path) -> None:
    path = tmp_path / "actions.toml"
    path.write_text('[webhooks]\nconfirmed = ["https://a.example"]\n[files]\nfolder = "inbox"\n')
    read = Addresses.load(path)
    assert read.is_confirmed("https://a.example/any")
    assert not read.is_confirmed("http://a.example/")
    assert read.folder == "inbox"
    for bad in ("../x", "objects", "a/b", "", "."):
        path.write_text(f'[files]\nfolder = "{bad}"\n')
        with pytest.raises(TerminalError, match="folder"):
            Addresses.load(path)

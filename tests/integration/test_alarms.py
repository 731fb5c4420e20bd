"""An alarm in a real control, through boto3: a webhook receives it, also after a kill."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.integration.control_rig import ControlUnderTest

pytestmark = pytest.mark.integration


class Hook:
    """A web server that keeps received requests."""

    def __init__(self) -> None:
        reported: list[dict[str, Any]] = []

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reported.append(json.loads(json.loads(body)["Message"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.reported = reported
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def states(self) -> list[str]:
        return [str(it["NewStateValue"]) for it in self.reported]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def control(tmp_path: Path, hook: Hook) -> Iterator[ControlUnderTest]:
    under_test = ControlUnderTest(tmp_path)
    under_test.home.actions.write_text(f'[topics]\nalerts = "{hook.url}"\n')
    try:
        under_test.start()
        yield under_test
    finally:
        under_test.stop_everything()


def test_an_alarm_is_posted_and_outlives_a_kill_of_control(
    control: ControlUnderTest, hook: Hook
) -> None:
    cloudwatch = control.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="busy",
        Namespace="Own",
        MetricName="Load",
        Statistic="Maximum",
        Period=10,
        EvaluationPeriods=1,
        Threshold=5.0,
        ComparisonOperator="GreaterThanThreshold",
        AlarmActions=["arn:aws:sns:us-west-2:111122223333:alerts"],
        OKActions=[hook.url],
    )
    cloudwatch.put_composite_alarm(
        AlarmName="all", AlarmRule='ALARM("busy")', AlarmActions=[hook.url]
    )

    def state() -> str:
        found = cloudwatch.describe_alarms(AlarmNames=["busy"])["MetricAlarms"][0]
        return str(found["StateValue"])

    sample = {"MetricName": "Load", "Value": 9.0, "StorageResolution": 1}
    cloudwatch.put_metric_data(Namespace="Own", MetricData=[sample])
    control.until(lambda: len(hook.reported) == 2, "the hook hears of both alarms")
    assert {it["AlarmName"] for it in hook.reported} == {"busy", "all"}
    assert hook.states() == ["ALARM", "ALARM"]

    control.kill()
    control.start()
    assert state() == "ALARM"
    cloudwatch.set_alarm_state(AlarmName="busy", StateValue="OK", StateReason="a test")
    control.until(lambda: "OK" in hook.states(), "the hook hears of what was set by hand")
    control.until(lambda: state() == "ALARM", "what was measured before the kill alarms again")
    history = cloudwatch.describe_alarm_history(AlarmName="busy", HistoryItemType="StateUpdate")
    assert [it["HistorySummary"] for it in history["AlarmHistoryItems"]] == [
        "Alarm updated from OK to ALARM",
        "Alarm updated from ALARM to OK",
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
    ]

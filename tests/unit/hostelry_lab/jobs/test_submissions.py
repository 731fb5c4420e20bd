"""Submissions of the drill repeat until they are acknowledged, each time with another id."""

from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from hostelry_lab.jobs.plan import PlannedRequest
from hostelry_lab.jobs.submissions import DrillSubmissions
from hostelry_lab.observer import wait_for

REQUESTS = [
    PlannedRequest("r1", 10, by_location=False, is_refused=False),
    PlannedRequest("r2", 10, by_location=True, is_refused=False),
]


class FakePlatform:
    """Fails the first calls of each kind with the errors that it is given."""

    name = "drill"

    def __init__(self, errors: list[Exception]) -> None:
        self.s3 = self.runtime = self
        self._errors = {"put": list(errors), "invoke": list(errors)}
        self.invoked: list[dict[str, Any]] = []

    def put_object(self, **asked: Any) -> None:
        self._fail("put")

    def invoke_endpoint_async(self, **asked: Any) -> None:
        self.invoked.append(asked)
        self._fail("invoke")

    def _fail(self, kind: str) -> None:
        if self._errors[kind]:
            raise self._errors[kind].pop(0)


def test_each_request_is_tried_until_it_is_acknowledged_under_another_id_each_time() -> None:
    unavailable = ClientError({"Error": {"Code": "ServiceUnavailable"}}, "InvokeEndpointAsync")
    platform: Any = FakePlatform([unavailable, ConnectionClosedError(endpoint_url="http://x")])
    submissions = DrillSubmissions(platform, REQUESTS, lambda _: True, pause_s=0.0)
    with submissions.running(1):
        assert wait_for(lambda: submissions.is_over or None, 10)
    assert [it["InferenceId"] for it in platform.invoked] == ["r1-1", "r1-2", "r1-3", "r2-1"]
    assert [it.acknowledged for it in submissions.tries] == [False, False, True, True]
    assert submissions.refusals == {"ServiceUnavailable": 1, "ConnectionClosedError": 1}
    assert platform.invoked[0]["Body"] == REQUESTS[0].body
    assert platform.invoked[-1]["InputLocation"] == "s3://drill/requests/r2"


def test_no_more_is_submitted_than_may_be_unanswered() -> None:
    platform: Any = FakePlatform([])
    submissions = DrillSubmissions(
        platform, REQUESTS, lambda acknowledged: acknowledged < 1, pause_s=0.0
    )
    with submissions.running(1):
        assert wait_for(lambda: submissions.num_acknowledged or None, 10) == 1
    assert len(platform.invoked) == 1

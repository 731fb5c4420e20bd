"""Calls to a control that are sent once more, and calls that only read."""

import pytest

from hostelry.cluster.leader_view import NOT_LEADER, outcome_of
from hostelry.dataplane.control_calls import CallOutcome, is_read, may_send_again
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.dataplane.http.reply import BrokenError, ConnectError, DeadlineError, Reply

NEVER, READS, ALWAYS = (False, False), (True, False), (True, True)


def reply(status: int, headers: dict[str, str]) -> Reply:
    made = Reply(FakeReplyConnection())
    made.head_came(status, headers)
    return made


def sent(given: Exception | tuple[int, dict[str, str]]) -> CallOutcome:
    async_error = isinstance(given, BrokenError | ConnectError | DeadlineError)
    return outcome_of(given if async_error else reply(*given))  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("given", "again"),
    [
        pytest.param(ConnectError("refused"), ALWAYS, id="no byte of it was taken"),
        pytest.param((503, {NOT_LEADER: "1"}), ALWAYS, id="the control did not take it"),
        pytest.param(BrokenError("reset"), READS, id="the connection was reset"),
        pytest.param(DeadlineError("late"), READS, id="the control hangs"),
        pytest.param((503, {}), NEVER, id="a control answered that it cannot now"),
        pytest.param((200, {}), NEVER, id="a control answered"),
    ],
)
def test_what_is_sent_again(
    given: Exception | tuple[int, dict[str, str]], again: tuple[bool, bool]
) -> None:
    outcome = sent(given)
    found = [may_send_again(outcome, only_reads=it, is_whole=True) for it in (True, False)]
    assert tuple(found) == again
    assert not may_send_again(outcome, only_reads=True, is_whole=False)


POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("head", "body", "found"),
    [
        pytest.param(b"GET /internal/routes HTTP/1.1\r\n\r\n", b"", True, id="a GET"),
        pytest.param(b"GET /?Action=ListQueues HTTP/1.1\r\n\r\n", b"", True, id="List, by GET"),
        pytest.param(b"GET /?Action=SendMessage HTTP/1.1\r\n\r\n", b"", False, id="Send, by GET"),
        pytest.param(
            b"GET /?a=Action=ListQueues&Action=SendMessage HTTP/1.1\r\n\r\n",
            b"",
            False,
            id="Send, behind what looks like List",
        ),
        pytest.param(b"PUT /schedules/s HTTP/1.1\r\n\r\n", b"", False, id="a PUT"),
        pytest.param(
            POST + b"x-amz-target: SageMaker.DescribeEndpoint\r\n\r\n", b"{}", True, id="Describe"
        ),
        pytest.param(
            POST + b"X-Amz-Target: SageMaker.CreateEndpoint\r\n\r\n", b"{}", False, id="Create"
        ),
        pytest.param(
            POST + b"x-amz-target: Logs_20140328.Getaway\r\n\r\n", b"{}", False, id="no verb"
        ),
        pytest.param(
            POST + b"x-amz-target: SageMaker.CreateModel\r\n\r\n",
            b"\r\nx-amz-target: SageMaker.DescribeModel",
            False,
            id="a body that looks like a head",
        ),
        pytest.param(
            b"POST /service/GraniteServiceVersion20100801/operation/ListMetrics HTTP/1.1\r\n\r\n",
            b"",
            True,
            id="List, in CBOR",
        ),
        pytest.param(
            b"POST /service/GraniteServiceVersion20100801/operation/PutMetricData HTTP/1.1\r\n\r\n",
            b"",
            False,
            id="Put, in CBOR",
        ),
        pytest.param(POST + b"\r\n", b"Action=GetCallerIdentity&Version=1", True, id="a form"),
        pytest.param(POST + b"\r\n", b"Action=Publish&Message=Action=Get", False, id="Publish"),
        pytest.param(POST + b"x-hostelry-key: k\r\n\r\n", b"[]", False, id="a report"),
    ],
)
def test_what_only_reads(head: bytes, body: bytes, found: bool) -> None:
    assert is_read(head, body) is found

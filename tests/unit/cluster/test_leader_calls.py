"""Calls to a control that are sent once more, and calls that only read."""

from tests.cases import case, cases

from hostelry.cluster.leader_view import NOT_LEADER, classify_outcome
from hostelry.dataplane.control_calls import CallOutcome, is_read, may_send_again
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.http1.reply import BrokenError, ConnectError, DeadlineError, Reply

NEVER, READS, ALWAYS = (False, False), (True, False), (True, True)


def reply(status: int, headers: dict[str, str]) -> Reply:
    made = Reply(FakeReplyConnection())
    made.set_head(status, headers)
    return made


def sent(given: Exception | tuple[int, dict[str, str]]) -> CallOutcome:
    async_error = isinstance(given, BrokenError | ConnectError | DeadlineError)
    return classify_outcome(given if async_error else reply(*given))  # type: ignore[arg-type,misc]


@cases(
    "given, again",
    case("no byte of it was taken", ConnectError("refused"), ALWAYS),
    case("the control did not take it", (503, {NOT_LEADER: "1"}), ALWAYS),
    case("the connection was reset", BrokenError("reset"), READS),
    case("the control hangs", DeadlineError("late"), READS),
    case("a control answered that it cannot now", (503, {}), NEVER),
    case("a control answered", (200, {}), NEVER),
)
def test_what_is_sent_again(
    given: Exception | tuple[int, dict[str, str]], again: tuple[bool, bool]
) -> None:
    outcome = sent(given)
    found = [may_send_again(outcome, only_reads=it, is_whole=True) for it in (True, False)]
    assert tuple(found) == again
    assert not may_send_again(outcome, only_reads=True, is_whole=False)


POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@cases(
    "head, body, found",
    case("a GET", b"GET /internal/routes HTTP/1.1\r\n\r\n", b"", True),
    case("List, by GET", b"GET /?Action=ListQueues HTTP/1.1\r\n\r\n", b"", True),
    case("Send, by GET", b"GET /?Action=SendMessage HTTP/1.1\r\n\r\n", b"", False),
    case(
        "Send, behind what looks like List",
        b"GET /?a=Action=ListQueues&Action=SendMessage HTTP/1.1\r\n\r\n",
        b"",
        False,
    ),
    case("a PUT", b"PUT /schedules/s HTTP/1.1\r\n\r\n", b"", False),
    case("Describe", POST + b"x-amz-target: SageMaker.DescribeEndpoint\r\n\r\n", b"{}", True),
    case("Create", POST + b"X-Amz-Target: SageMaker.CreateEndpoint\r\n\r\n", b"{}", False),
    case("no verb", POST + b"x-amz-target: Logs_20140328.Getaway\r\n\r\n", b"{}", False),
    case(
        "a body that looks like a head",
        POST + b"x-amz-target: SageMaker.CreateModel\r\n\r\n",
        b"\r\nx-amz-target: SageMaker.DescribeModel",
        False,
    ),
    case(
        "List, in CBOR",
        b"POST /service/GraniteServiceVersion20100801/operation/ListMetrics HTTP/1.1\r\n\r\n",
        b"",
        True,
    ),
    case(
        "Put, in CBOR",
        b"POST /service/GraniteServiceVersion20100801/operation/PutMetricData HTTP/1.1\r\n\r\n",
        b"",
        False,
    ),
    case("a form", POST + b"\r\n", b"Action=GetCallerIdentity&Version=1", True),
    case("Publish", POST + b"\r\n", b"Action=Publish&Message=Action=Get", False),
    case("a report", POST + b"x-hostelry-key: k\r\n\r\n", b"[]", False),
)
def test_what_only_reads(head: bytes, body: bytes, found: bool) -> None:
    assert is_read(head, body) is found

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.parsers import ResponseParserError

from hostelry.server.readiness import why_not_ready

REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListBuckets")


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(EndpointConnectionError(endpoint_url="http://x"), id="nobody listens"),
        pytest.param(REFUSED, id="it refuses"),
        pytest.param(ResponseParserError("404 page not found"), id="it answers no XML yet"),
    ],
)
def test_whatever_a_server_answers_while_it_starts_is_a_reason_to_ask_again(
    failure: Exception,
) -> None:
    def call() -> None:
        raise failure

    assert str(failure) == why_not_ready(call)


def test_an_answer_is_no_reason() -> None:
    assert why_not_ready(lambda: {"Buckets": []}) is None

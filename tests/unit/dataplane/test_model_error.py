import pytest
from tests.unit.dataplane.routes_sample import HERE, SNAPSHOT

from hostelry.dataplane.model_error import (
    MAX_ORIGINAL_CHARACTERS,
    build_answer_error,
)
from hostelry.dataplane.route_table import RouteTable

TABLE = RouteTable(SNAPSHOT)


@pytest.mark.parametrize(
    ("status", "side"), [(400, "client"), (404, "client"), (500, "server"), (507, "server")]
)
def test_a_containers_error_keeps_its_status_and_text(status: int, side: str) -> None:
    component = TABLE.component(HERE, "base")
    assert component is not None
    error = build_answer_error(component, status, b"bad input")
    group = "/aws/sagemaker/InferenceComponents/base"
    assert (error.code, error.http_status) == ("ModelError", 424)
    assert error.message == (
        f'Received {side} error ({status}) from primary with message "bad input". '
        "See https://us-west-2.console.aws.amazon.com/cloudwatch/home?region=us-west-2"
        f"#logEventViewer:group={group} in account 111122223333 for more information."
    )
    assert error.members == {
        "OriginalStatusCode": status,
        "OriginalMessage": "bad input",
        "LogStreamArn": f"arn:aws:logs:us-west-2:111122223333:log-group:{group}",
    }


def test_a_long_or_binary_body_is_cut_and_made_text() -> None:
    endpoint = TABLE.endpoint(HERE, "models")
    assert endpoint is not None
    variant = TABLE.variant(endpoint, endpoint.variants[0])
    error = build_answer_error(variant, 500, b"\xff" * 100_000)
    assert len(error.members["OriginalMessage"]) == MAX_ORIGINAL_CHARACTERS
    assert "log-group:/aws/sagemaker/Endpoints/models" in error.members["LogStreamArn"]

"""Any request that the service model allows: an answer in its shape, or a modelled refusal."""

from random import Random
from typing import Any

import pytest
from tests.contract.api.rig import Api
from tests.contract.wire.conftest import AnyValue

from hostelry.api.operations import SERVED
from hostelry.aws.models import service_model
from hostelry.base.errors import ServiceError

REFUSALS = {
    "InvalidParameterException",
    "ResourceAlreadyExistsException",
    "ResourceNotFoundException",
    "TooManyTagsException",
    "ValidationException",
}


@pytest.mark.parametrize("operation", sorted(SERVED["logs"]))
def test_any_request_is_answered_or_refused(api: Api, operation: str) -> None:
    shape = service_model("logs").operation_model(operation).input_shape
    for seed in range(40):
        values = AnyValue(random=Random(seed), full=seed % 2 == 0, constrained=True)
        params = values.of(shape)
        if seed % 4 < 2 and "logGroupIdentifier" in params:
            del params["logGroupIdentifier"]
        if "logGroupName" in params and not operation.startswith("Create"):
            group = {"logGroupName": params["logGroupName"]}
            stream = {"logStreamName": params.get("logStreamName", "s")}
            attempt(api, "CreateLogGroup", group)
            attempt(api, "CreateLogStream", {**group, **stream})
        attempt(api, operation, params)


def attempt(api: Api, operation: str, params: dict[str, Any]) -> None:
    try:
        api.call(operation, "logs", **params)
    except ServiceError as error:
        if error.code not in REFUSALS:
            raise

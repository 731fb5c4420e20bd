"""Requests of inference experiments."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError

Call = Callable[..., dict[str, Any]]
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
ARN = "arn:aws:sagemaker:us-west-2:123456789012:inference-experiment/trial"
DAY_S = 86_400.0


def variant(name: str, model: str, count: int = 1) -> dict[str, Any]:
    return {
        "ModelName": model,
        "VariantName": name,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": count},
        },
    }


MAIN, NEXT = variant("main", "v1"), variant("next", "v2")


def mirrors(percent: int = 40, shadow: str = "next", source: str = "main") -> dict[str, Any]:
    shown = {"ShadowModelVariantName": shadow, "SamplingPercentage": percent}
    return {"SourceModelVariantName": source, "ShadowModelVariants": [shown]}


TRIAL: dict[str, Any] = {
    "Name": "trial",
    "Type": "ShadowMode",
    "RoleArn": ROLE,
    "EndpointName": "e",
    "ModelVariants": [MAIN, NEXT],
    "ShadowModeConfig": mirrors(),
}
STORAGE = {
    "Destination": "s3://captured/here/",
    "KmsKey": "1234abcd-12ab-34cd-56ef-1234567890ab",
    "ContentType": {"CsvContentTypes": ["text/csv"], "JsonContentTypes": ["application/json"]},
}
PRODUCTION = {
    "VariantName": "main",
    "ModelName": "v1",
    "InstanceType": "ml.m5.xlarge",
    "InitialInstanceCount": 1,
}


def error(api: Api, operation: str, **params: Any) -> tuple[str, str]:
    with pytest.raises(ServiceError) as caught:
        api.call(operation, **params)
    assert caught.value.http_status == 400
    return caught.value.code, caught.value.message

"""GetScalingConfigurationRecommendation, and its refusals."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api
from tests.contract.api.sagemaker.recommendation_requests import TYPE, job_with

from hostelry.base.errors import ServiceError
from hostelry.domain.recommendation_job import BenchmarkMetrics, BenchmarkStep, RecommendationStatus

OPERATION = "GetScalingConfigurationRecommendation"
COMPLETED = RecommendationStatus.COMPLETED
METRICS = BenchmarkMetrics(invocations_per_minute=600.0, latency_ms=7.2, cpu_percent=400.0)
OBJECTIVE = {"MinInvocationsPerMinute": 100, "MaxInvocationsPerMinute": 1000}


@pytest.fixture
def recommendation_id(api: Api) -> str:
    """The id of the result of a job, which has measured an endpoint, too."""
    api.make.model()
    api.call("CreateInferenceRecommendationsJob", **job_with(("EndpointConfigurations", [TYPE])))
    found = api.state.recommendation_jobs.get(api.scope, "Job-1")
    assert found is not None
    first = replace(found.value.steps[0], status=COMPLETED, metrics=METRICS)
    measured = replace(METRICS, cpu_percent=None)
    mine = BenchmarkStep(number=2, status=COMPLETED, endpoint_name="e", metrics=measured)
    waiting = BenchmarkStep(number=3, instance_type="ml.m5.xlarge")
    changed = replace(found.value, steps=(first, mine, waiting))
    api.state.recommendation_jobs.put(api.scope, "Job-1", changed, expect=found.version)
    shown = api.call("DescribeInferenceRecommendationsJob", JobName="Job-1")
    text: str = shown["InferenceRecommendations"][0]["RecommendationId"]
    return text


def ask(api: Api, **params: Any) -> dict[str, Any]:
    return api.call(OPERATION, InferenceRecommendationsJobName="Job-1", **params)


def test_a_policy_for_half_of_the_cpus(api: Api, recommendation_id: str) -> None:
    found = ask(api, RecommendationId=recommendation_id, ScalingPolicyObjective=OBJECTIVE)
    assert found == {
        "InferenceRecommendationsJobName": "Job-1",
        "RecommendationId": recommendation_id,
        "TargetCpuUtilizationPerCore": 50,
        "ScalingPolicyObjective": OBJECTIVE,
        "Metric": {"InvocationsPerInstance": 300, "ModelLatency": 8},
        "DynamicScalingConfiguration": {
            "MinCapacity": 1,
            "MaxCapacity": 4,
            "ScaleInCooldown": 300,
            "ScaleOutCooldown": 300,
            "ScalingPolicies": [
                {
                    "TargetTracking": {
                        "MetricSpecification": {
                            "Predefined": {
                                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                            }
                        },
                        "TargetValue": 300.0,
                    }
                }
            ],
        },
    }


def test_a_policy_for_the_endpoint_that_was_measured(api: Api, recommendation_id: str) -> None:
    found = ask(api, EndpointName="e", TargetCpuUtilizationPerCore=25)
    assert found["Metric"]["InvocationsPerInstance"] == 150
    assert "MaxCapacity" not in found["DynamicScalingConfiguration"]


@cases(
    "params, code, expected",
    case("neither", {}, "ValidationException", "Exactly one of"),
    case(
        "both", {"EndpointName": "e", "RecommendationId": "x"}, "ValidationException", "Exactly one"
    ),
    case(
        "an unknown result", {"RecommendationId": "Job-1/00000000"}, "ResourceNotFound", "no result"
    ),
    case("an unknown endpoint", {"EndpointName": "f"}, "ResourceNotFound", 'endpoint "f"'),
    case(
        "less than nothing",
        {"EndpointName": "e", "ScalingPolicyObjective": {"MinInvocationsPerMinute": -1}},
        "ValidationException",
        "give 0 or more",
    ),
    case(
        "more at least than at most",
        {
            "EndpointName": "e",
            "ScalingPolicyObjective": {
                "MinInvocationsPerMinute": 9,
                "MaxInvocationsPerMinute": 8,
            },
        },
        "ValidationException",
        "MinInvocationsPerMinute 9 exceeds",
    ),
)
@pytest.mark.usefixtures("recommendation_id")
def test_a_refused_request(api: Api, params: dict[str, Any], code: str, expected: str) -> None:
    with pytest.raises(ServiceError, match=expected) as caught:
        ask(api, **params)
    assert caught.value.code == code


def test_an_unknown_job(api: Api) -> None:
    with pytest.raises(ServiceError) as caught:
        ask(api, EndpointName="e")
    assert caught.value.code == "ResourceNotFound"

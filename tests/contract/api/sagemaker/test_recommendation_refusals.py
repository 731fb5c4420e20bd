"""Requests for inference recommendations jobs that are refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api
from tests.contract.api.sagemaker.recommendation_requests import (
    ARN,
    JOB,
    PHASE,
    STAIRS,
    TYPE,
    job_with,
)

from hostelry.base.errors import ServiceError


@cases(
    "params, expected",
    case("an unknown model", job_with(("ModelName", "n")), 'Could not find model "'),
    case("no model", job_with(("ModelName", None)), "InputConfig.ModelName is required"),
    case(
        "a model package",
        job_with(("ModelPackageVersionArn", f"{ARN}model-package/p/1")),
        "ModelPackageVersionArn is not supported",
    ),
    case(
        "a role that nobody made",
        {**JOB, "RoleArn": "arn:aws:iam::123456789012:role/other"},
        "Could not assume role",
    ),
    case(
        "no payload",
        job_with(("ContainerConfig.PayloadConfig", {})),
        "SamplePayloadUrl is required",
    ),
    case(
        "a payload elsewhere",
        job_with(
            ("ContainerConfig.PayloadConfig.SamplePayloadUrl", "https://example.com/rows.tar.gz")
        ),
        "Give it as s3://bucket/key",
    ),
    case(
        "no content type",
        job_with(("ContainerConfig.PayloadConfig.SupportedContentTypes", [])),
        "SupportedContentTypes is required",
    ),
    case(
        "no text in a content type",
        job_with(("ContainerConfig.PayloadConfig.SupportedContentTypes", ["a/b\x01"])),
        "which is no content type",
    ),
    case(
        "no text in a type of answers",
        job_with(("ContainerConfig.SupportedResponseMIMETypes", ["a/b\x01"])),
        "which is no content type",
    ),
    case(
        "a Default job with traffic",
        job_with(("TrafficPattern", {"Phases": [PHASE]}), JobType="Default"),
        "InputConfig.TrafficPattern is for JobType Advanced",
    ),
    case(
        "a Default job with conditions",
        job_with(JobType="Default", StoppingConditions={"MaxInvocations": 1}),
        "StoppingConditions is for JobType Advanced",
    ),
    case("too long a job", job_with(("JobDurationInSeconds", 18_001)), "at most 18000 is possible"),
    case(
        "traffic that takes longer than the job",
        job_with(("TrafficPattern", {"Phases": [PHASE]}), ("JobDurationInSeconds", 59)),
        "takes 60 s, longer than the job",
    ),
    case(
        "phases with stairs",
        job_with(("TrafficPattern", {"Phases": [PHASE], "Stairs": STAIRS})),
        "TrafficType PHASES needs Phases, and excludes Stairs",
    ),
    case(
        "stairs without their number",
        job_with(("TrafficPattern", {"TrafficType": "STAIRS", "Stairs": {"UsersPerStep": 1}})),
        "TrafficPattern.Stairs.DurationInSeconds is required",
    ),
    case(
        "a phase without a duration",
        job_with(("TrafficPattern", {"Phases": [{"InitialNumberOfUsers": 1}]})),
        "Phases.1.DurationInSeconds is required",
    ),
    case(
        "too many users",
        job_with(("TrafficPattern", {"Phases": [{**PHASE, "SpawnRate": 10**9}]})),
        "at most 1000 are possible",
    ),
    case(
        "too many stairs",
        job_with(
            (
                "TrafficPattern",
                {"TrafficType": "STAIRS", "Stairs": {**STAIRS, "NumberOfSteps": 10**9}},
            )
        ),
        "NumberOfSteps is 1000000000; at most 1000 are possible",
    ),
    case(
        "a percentile that is not measured",
        job_with(
            StoppingConditions={
                "ModelLatencyThresholds": [{"Percentile": "P50", "ValueInMilliseconds": 1}]
            }
        ),
        'Percentile is "P50"; it must be P95 or P99',
    ),
    case(
        "a threshold without a value",
        job_with(StoppingConditions={"ModelLatencyThresholds": [{"Percentile": "P95"}]}),
        "ValueInMilliseconds is None; give 1 or more",
    ),
    case(
        "no invocations",
        job_with(StoppingConditions={"MaxInvocations": 0}),
        "MaxInvocations is 0; give 1 or more",
    ),
    case(
        "a configuration without a type",
        job_with(("EndpointConfigurations", [{}])),
        "EndpointConfigurations.1.InstanceType is required",
    ),
    case(
        "a serverless configuration",
        job_with(
            (
                "EndpointConfigurations",
                [{"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}],
            )
        ),
        "ServerlessConfig is not supported",
    ),
    case(
        "a variable twice",
        job_with(
            (
                "EndpointConfigurations",
                [
                    {
                        **TYPE,
                        "EnvironmentParameterRanges": {
                            "CategoricalParameterRanges": [{"Name": "A", "Value": ["1"]}] * 2
                        },
                    }
                ],
            )
        ),
        'the variable "A" is given twice',
    ),
    case(
        "a type that the model does not support",
        job_with(
            ("EndpointConfigurations", [TYPE]),
            ("ContainerConfig.SupportedInstanceTypes", ["ml.c5.large"]),
        ),
        "InstanceType ml.m5.xlarge, which is not among",
    ),
    case(
        "an unknown type",
        job_with(("ContainerConfig.SupportedInstanceTypes", ["ml.m5.huge"])),
        "not an instance type that Hostelry knows",
    ),
    case(
        "a configuration of an unknown type",
        job_with(("EndpointConfigurations", [TYPE | {"InstanceType": "ml.m5.huge"}])),
        'EndpointConfigurations has "ml.m5.huge", which is not an instance type',
    ),
    case(
        "an unknown endpoint",
        job_with(("Endpoints", [{"EndpointName": "nope"}])),
        'Could not find endpoint "',
    ),
    case(
        "an endpoint that does not serve",
        job_with(("Endpoints", [{"EndpointName": "e"}])),
        "is Creating, and must be InService",
    ),
)
def test_a_request_that_is_refused(api: Api, params: Mapping[str, Any], expected: str) -> None:
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    assert expected in api.refusal("CreateInferenceRecommendationsJob", **params)
    assert api.state.recommendation_jobs.list() == []


def test_too_many_tests_are_refused(api: Api) -> None:
    api.make.model()
    with pytest.raises(ServiceError, match="MaxNumberOfTests is 101; at most 100"):
        api.call(
            "CreateInferenceRecommendationsJob",
            **job_with(("ResourceLimit", {"MaxNumberOfTests": 101})),
        )

"""Requests for inference recommendations jobs."""

import copy
from collections.abc import Mapping
from typing import Any

from tests.contract.api.rig import ROLE

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
PAYLOAD = {"SamplePayloadUrl": "s3://in/rows.tar.gz", "SupportedContentTypes": ["text/csv"]}
JOB: Mapping[str, Any] = {
    "JobName": "Job-1",
    "JobType": "Advanced",
    "RoleArn": ROLE,
    "InputConfig": {"ModelName": "m", "ContainerConfig": {"PayloadConfig": PAYLOAD}},
}
TYPE = {"InstanceType": "ml.m5.xlarge"}
STAIRS = {"DurationInSeconds": 30, "NumberOfSteps": 2, "UsersPerStep": 3}
PHASE = {"InitialNumberOfUsers": 1, "SpawnRate": 2, "DurationInSeconds": 60}


def job_with(*changes: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """JOB with members of InputConfig replaced by dotted path (None: removed), and more."""
    params = copy.deepcopy(dict(JOB))
    for path, value in changes:
        at = params["InputConfig"]
        *steps, last = path.split(".")
        for step in steps:
            at = at.setdefault(step, {})
        at[last] = value
        if value is None:
            del at[last]
    return {**params, **more}


def environment(**values: list[str]) -> dict[str, Any]:
    """An EndpointConfiguration with ranges of variables."""
    ranges = [{"Name": name, "Value": value} for name, value in values.items()]
    return {**TYPE, "EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}}

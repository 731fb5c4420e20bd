"""Inference experiments: what is described, made and refused; lists and tags."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.contract.api.conftest import Maker
from tests.contract.api.sagemaker.experiments.requests import (
    ARN,
    DAY_S,
    MAIN,
    NEXT,
    PRODUCTION,
    ROLE,
    STORAGE,
    TRIAL,
    Call,
    error,
    mirrors,
    variant,
)

from hostelry.base.clock import ManualClock
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import ExperimentStatus
from hostelry.domain.scope import Scope


@pytest.mark.usefixtures("models")
def test_everything_given_is_described(
    create: Call, describe: Call, clock: ManualClock, make: Maker
) -> None:
    start_at, end_at = clock.now() + 60, clock.now() + 2 * DAY_S
    given = {
        "Description": "is v2 as fast?",
        "Schedule": {"StartTime": start_at, "EndTime": end_at},
        "DataStorageConfig": STORAGE,
        "KmsKey": "alias/mine",
        "Tags": [{"Key": "team", "Value": "a"}],
    }
    assert create(**given) == {"InferenceExperimentArn": ARN}
    shown = describe()
    assert shown == {
        "Arn": ARN,
        "Name": "trial",
        "Type": "ShadowMode",
        "Status": "Creating",
        "Schedule": given["Schedule"],
        "Description": "is v2 as fast?",
        "RoleArn": ROLE,
        "CreationTime": clock.now(),
        "LastModifiedTime": clock.now(),
        "EndpointMetadata": {"EndpointName": "e"},
        "ModelVariants": [{**MAIN, "Status": "Creating"}, {**NEXT, "Status": "Creating"}],
        "DataStorageConfig": STORAGE,
        "ShadowModeConfig": mirrors(),
        "KmsKey": "alias/mine",
    }


@pytest.mark.usefixtures("models")
def test_without_a_schedule_it_starts_now_for_seven_days(
    create: Call, describe: Call, clock: ManualClock, look: Callable[..., None]
) -> None:
    # CreateInferenceExperiment, Schedule
    create()
    now = clock.now()
    assert describe()["Schedule"] == {"StartTime": now, "EndTime": now + 7 * DAY_S}
    look()
    assert describe()["Status"] == "Created"
    look(2)
    shown = describe()
    assert (shown["Status"], shown["EndpointMetadata"]["EndpointStatus"]) == (
        "Starting",
        "Creating",
    )


@pytest.mark.usefixtures("models")
def test_the_endpoint_that_is_made_has_the_configuration_described(
    call: Call, create: Call, describe: Call, look: Callable[..., None]
) -> None:
    create(DataStorageConfig=STORAGE, KmsKey="alias/mine")
    look(3)
    metadata = describe()["EndpointMetadata"]
    config = call("DescribeEndpointConfig", EndpointConfigName=metadata["EndpointConfigName"])
    (production,), (shadow,) = config["ProductionVariants"], config["ShadowProductionVariants"]
    assert (production["ModelName"], production["InitialVariantWeight"]) == ("v1", 1.0)
    assert (shadow["VariantName"], shadow["InitialVariantWeight"]) == ("next", 0.4)
    assert config["KmsKeyId"] == "alias/mine"
    assert config["DataCaptureConfig"] == {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": STORAGE["Destination"],
        "KmsKeyId": STORAGE["KmsKey"],
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": STORAGE["ContentType"],
    }
    endpoint = call("DescribeEndpoint", EndpointName="e")
    (shown,) = endpoint["ShadowProductionVariants"]
    assert (shown["VariantName"], shown["DesiredWeight"]) == ("next", 0.4)
    assert endpoint["DataCaptureConfig"]["DestinationS3Uri"] == "s3://captured/here"


@pytest.mark.usefixtures("serving")
def test_an_endpoint_that_is_there_keeps_its_other_settings(
    call: Call, create: Call, look: Callable[..., None]
) -> None:
    create(ModelVariants=[NEXT])
    look(4)
    endpoint = call("DescribeEndpoint", EndpointName="e")
    config = call("DescribeEndpointConfig", EndpointConfigName=endpoint["EndpointConfigName"])
    assert config["ExecutionRoleArn"] == ROLE
    assert [it["VariantName"] for it in endpoint["ProductionVariants"]] == ["main"]
    assert [it["VariantName"] for it in endpoint["ShadowProductionVariants"]] == ["next"]
    assert endpoint["EndpointStatus"] == "Updating"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        pytest.param({"ModelVariants": [NEXT]}, 'no endpoint "e": give its', id="no production"),
        pytest.param({"ModelVariants": [MAIN, MAIN]}, '"main" is named twice', id="a name twice"),
        pytest.param(
            {"ModelVariants": [MAIN, variant("x", "v2")]},
            'no shadow variant "next" in ModelVariants, which has main, x',
            id="another shadow",
        ),
        pytest.param(
            {"ModelVariants": [variant("x", "v1"), NEXT]},
            'uses "main" and "next" only',
            id="another production variant",
        ),
        pytest.param(
            {"ShadowModeConfig": mirrors(source="next")}, "both the source and", id="its own shadow"
        ),
        pytest.param({"ShadowModeConfig": mirrors(-1)}, "SamplingPercentage is -1", id="less"),
        pytest.param(
            {"ModelVariants": [MAIN, variant("next", "v9")]},
            f'Could not find model "{ARN.partition("inference")[0]}model/v9".',
            id="no such model",
        ),
        pytest.param(
            {"ModelVariants": [MAIN, variant("next", "v2", 0)]},
            "ModelVariants.2.InfrastructureConfig.RealTimeInferenceConfig.InstanceCount is 0",
            id="no instance",
        ),
        pytest.param(
            {"ModelVariants": [MAIN, variant("next", "many")]}, "MultiModel", id="a multi-model"
        ),
        pytest.param(
            {"ModelVariants": [MAIN, variant("next", "chain")]},
            'model "chain", which has 2 containers',
            id="a pipeline",
        ),
        pytest.param(
            {"RoleArn": "arn:aws:iam::123456789012:role/nobody"},
            "Could not assume role",
            id="no such role",
        ),
        pytest.param({"EndpointName": "E2"}, "another case of letters", id="a name in other case"),
        pytest.param(
            {"DataStorageConfig": {"Destination": "https://example.org/x"}},
            "DestinationS3Uri",
            id="no object store",
        ),
        pytest.param(
            {"Schedule": {"StartTime": 1.0}}, "StartTime is in the past", id="a start in the past"
        ),
        pytest.param(
            {"Schedule": {"EndTime": 1.0}}, "EndTime must be after", id="an end in the past"
        ),
        pytest.param(
            {"Schedule": {"StartTime": 5e9, "EndTime": 5e9}}, "EndTime must be after", id="no time"
        ),
        pytest.param(
            {"Schedule": {"StartTime": 5e9, "EndTime": 5e9 + 31 * DAY_S}},
            "would last 31.0 days; at most 30",
            id="too long",
        ),
    ],
)
def test_a_request_that_is_refused(
    models: None,
    make: Maker,
    call: Call,
    refused: Callable[..., str],
    more: Mapping[str, Any],
    text: str,
) -> None:
    make.model(
        "many",
        PrimaryContainer={"Image": make.image, "ModelDataUrl": "s3://b/k/", "Mode": "MultiModel"},
    )
    call("CreateModel", ModelName="chain", Containers=[{"Image": make.image}] * 2)
    make.endpoint("e2", PRODUCTION)
    assert text in refused("CreateInferenceExperiment", **{**TRIAL, **more})
    assert call("ListInferenceExperiments") == {"InferenceExperiments": []}


@pytest.mark.parametrize(
    ("variants", "config", "text"),
    [
        pytest.param(
            [PRODUCTION, {**PRODUCTION, "VariantName": "b"}],
            {},
            "has 2 production variants",
            id="two production variants",
        ),
        pytest.param(
            [{**PRODUCTION, "VariantName": "b"}],
            {},
            'has the production variant "b", not the SourceModelVariantName "main"',
            id="another production variant",
        ),
        pytest.param([{}], {}, "hosts inference components", id="for components"),
        pytest.param(
            [PRODUCTION],
            {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://out/here"}}},
            "is asynchronous",
            id="asynchronous",
        ),
        pytest.param(
            [PRODUCTION],
            {"ShadowProductionVariants": [{**PRODUCTION, "VariantName": "old"}]},
            'has the shadow variant "old" already',
            id="a shadow",
        ),
    ],
)
def test_an_endpoint_that_cannot_have_one(
    models: None,
    make: Maker,
    call: Call,
    refused: Callable[..., str],
    change: Callable[..., None],
    variants: list[dict[str, Any]],
    config: dict[str, Any],
    text: str,
) -> None:
    make.config("c", *variants, **config)
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert "is Creating; an inference experiment" in refused("CreateInferenceExperiment", **TRIAL)
    change(status=EndpointStatus.IN_SERVICE)
    assert text in refused("CreateInferenceExperiment", **TRIAL)


@pytest.mark.usefixtures("models")
def test_a_serverless_endpoint_cannot_have_one(
    call: Call, refused: Callable[..., str], change: Callable[..., None]
) -> None:
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 1}
    one = {"VariantName": "main", "ModelName": "v1", "ServerlessConfig": serverless}
    call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[one])
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    change(status=EndpointStatus.IN_SERVICE)
    assert "is serverless" in refused("CreateInferenceExperiment", **TRIAL)


@pytest.mark.usefixtures("models")
def test_names_and_endpoints_are_used_once(call: Call, create: Call) -> None:
    create()
    code, text = error(call, "CreateInferenceExperiment", **{**TRIAL, "Name": "Trial"})
    assert (code, "already existing" in text) == ("ResourceInUse", True)
    code, text = error(call, "CreateInferenceExperiment", **{**TRIAL, "Name": "second"})
    assert (code, f'has the inference experiment "{ARN}"' in text) == ("ResourceInUse", True)
    many = [MAIN, variant("next", "v2", 5000)]
    other = {**TRIAL, "Name": "large", "EndpointName": "f", "ModelVariants": many}
    assert error(call, "CreateInferenceExperiment", **other)[0] == "ResourceLimitExceeded"


@pytest.mark.usefixtures("models")
def test_tags(call: Call, create: Call) -> None:
    create(Tags=[{"Key": "team", "Value": "a"}])
    call("AddTags", ResourceArn=ARN, Tags=[{"Key": "cost", "Value": "b"}])
    assert len(call("ListTags", ResourceArn=ARN)["Tags"]) == 2
    call("DeleteTags", ResourceArn=ARN, TagKeys=["team"])
    assert call("ListTags", ResourceArn=ARN)["Tags"] == [{"Key": "cost", "Value": "b"}]


@pytest.fixture
def several(models: None, create: Call, turn: Callable[..., None], clock: ManualClock) -> float:
    """Three experiments, ten seconds apart; the instant of the first."""
    first_at = clock.now()
    for number, name in enumerate(("trial", "alpha", "beta")):
        create(Name=name, EndpointName=f"e{number}")
        clock.advance(10)
    turn(status=ExperimentStatus.RUNNING, modified_at=first_at + 100)
    return first_at


@pytest.mark.parametrize(
    ("more", "names"),
    [
        pytest.param({}, ["beta", "alpha", "trial"], id="newest first"),
        pytest.param({"NameContains": "ta"}, ["beta"], id="a part of the name"),
        pytest.param({"Type": "ShadowMode"}, ["beta", "alpha", "trial"], id="the type"),
        pytest.param({"StatusEquals": "Running"}, ["trial"], id="a status"),
        pytest.param({"StatusEquals": "Stopping"}, [], id="a status that none has"),
        pytest.param({"CreationTimeAfter": 5.0}, ["beta", "alpha"], id="created after"),
        pytest.param({"CreationTimeBefore": 5.0}, ["trial"], id="created before"),
        pytest.param({"LastModifiedTimeAfter": 50.0}, ["trial"], id="modified after"),
        pytest.param({"LastModifiedTimeBefore": 50.0}, ["beta", "alpha"], id="modified before"),
        pytest.param(
            {"SortBy": "Name", "SortOrder": "Ascending"}, ["alpha", "beta", "trial"], id="by name"
        ),
        pytest.param({"SortBy": "Status"}, ["trial", "beta", "alpha"], id="by status"),
        pytest.param(
            {"SortBy": "CreationTime", "SortOrder": "Ascending"},
            ["trial", "alpha", "beta"],
            id="oldest first",
        ),
    ],
)
def test_lists(call: Call, several: float, more: dict[str, Any], names: list[str]) -> None:
    given = {key: several + it if isinstance(it, float) else it for key, it in more.items()}
    found = call("ListInferenceExperiments", **given)["InferenceExperiments"]
    assert [it["Name"] for it in found] == names


def test_lists_by_pages(call: Call, several: float) -> None:
    first = call("ListInferenceExperiments", MaxResults=2)
    rest = call("ListInferenceExperiments", MaxResults=2, NextToken=first["NextToken"])
    pages = [[it["Name"] for it in page["InferenceExperiments"]] for page in (first, rest)]
    assert pages == [["beta", "alpha"], ["trial"]]
    assert "NextToken" not in rest
    shown = rest["InferenceExperiments"][0]
    assert (shown["Type"], shown["Status"], shown["RoleArn"]) == ("ShadowMode", "Running", ROLE)


def test_scopes_do_not_meet(call_as: Call, models: None, create: Call) -> None:
    create()
    elsewhere = Scope("123456789012", "eu-west-1")
    assert call_as(elsewhere, "ListInferenceExperiments") == {"InferenceExperiments": []}

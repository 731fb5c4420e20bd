"""Inference experiments: descriptions, created resources, refusals, lists and tags."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api
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
def test_everything_given_is_described(create: Call, describe: Call, api: Api) -> None:
    start_at, end_at = api.clock.now() + 60, api.clock.now() + 2 * DAY_S
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
        "CreationTime": api.clock.now(),
        "LastModifiedTime": api.clock.now(),
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
    api: Api, create: Call, describe: Call, look: Callable[..., None]
) -> None:
    create(DataStorageConfig=STORAGE, KmsKey="alias/mine")
    look(3)
    metadata = describe()["EndpointMetadata"]
    config = api.call("DescribeEndpointConfig", EndpointConfigName=metadata["EndpointConfigName"])
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
    endpoint = api.call("DescribeEndpoint", EndpointName="e")
    (shown,) = endpoint["ShadowProductionVariants"]
    assert (shown["VariantName"], shown["DesiredWeight"]) == ("next", 0.4)
    assert endpoint["DataCaptureConfig"]["DestinationS3Uri"] == "s3://captured/here"


@pytest.mark.usefixtures("serving")
def test_an_endpoint_that_is_there_keeps_its_other_settings(
    api: Api, create: Call, look: Callable[..., None]
) -> None:
    create(ModelVariants=[NEXT])
    look(4)
    endpoint = api.call("DescribeEndpoint", EndpointName="e")
    config = api.call("DescribeEndpointConfig", EndpointConfigName=endpoint["EndpointConfigName"])
    assert config["ExecutionRoleArn"] == ROLE
    assert [it["VariantName"] for it in endpoint["ProductionVariants"]] == ["main"]
    assert [it["VariantName"] for it in endpoint["ShadowProductionVariants"]] == ["next"]
    assert endpoint["EndpointStatus"] == "Updating"


@cases(
    "more, text",
    case("no production", {"ModelVariants": [NEXT]}, 'no endpoint "e": give its'),
    case("a name twice", {"ModelVariants": [MAIN, MAIN]}, '"main" is named twice'),
    case(
        "another shadow",
        {"ModelVariants": [MAIN, variant("x", "v2")]},
        'no shadow variant "next" in ModelVariants, which has main, x',
    ),
    case(
        "another production variant",
        {"ModelVariants": [variant("x", "v1"), NEXT]},
        'uses "main" and "next" only',
    ),
    case("its own shadow", {"ShadowModeConfig": mirrors(source="next")}, "both the source and"),
    case("less", {"ShadowModeConfig": mirrors(-1)}, "SamplingPercentage is -1"),
    case(
        "no such model",
        {"ModelVariants": [MAIN, variant("next", "v9")]},
        f'Could not find model "{ARN.partition("inference")[0]}model/v9".',
    ),
    case(
        "no instance",
        {"ModelVariants": [MAIN, variant("next", "v2", 0)]},
        "ModelVariants.2.InfrastructureConfig.RealTimeInferenceConfig.InstanceCount is 0",
    ),
    case("a multi-model", {"ModelVariants": [MAIN, variant("next", "many")]}, "MultiModel"),
    case(
        "a pipeline",
        {"ModelVariants": [MAIN, variant("next", "chain")]},
        'model "chain", which has 2 containers',
    ),
    case(
        "no such role",
        {"RoleArn": "arn:aws:iam::123456789012:role/nobody"},
        "Could not assume role",
    ),
    case("a name in other case", {"EndpointName": "E2"}, "another case of letters"),
    case(
        "no object store",
        {"DataStorageConfig": {"Destination": "https://example.org/x"}},
        "DestinationS3Uri",
    ),
    case("a start in the past", {"Schedule": {"StartTime": 1.0}}, "StartTime is in the past"),
    case("an end in the past", {"Schedule": {"EndTime": 1.0}}, "EndTime must be after"),
    case("no time", {"Schedule": {"StartTime": 5e9, "EndTime": 5e9}}, "EndTime must be after"),
    case(
        "too long",
        {"Schedule": {"StartTime": 5e9, "EndTime": 5e9 + 31 * DAY_S}},
        "would last 31.0 days; at most 30",
    ),
)
def test_a_request_that_is_refused(
    models: None, api: Api, more: Mapping[str, Any], text: str
) -> None:
    api.make.model(
        "many",
        PrimaryContainer={
            "Image": api.make.image,
            "ModelDataUrl": "s3://b/k/",
            "Mode": "MultiModel",
        },
    )
    api.call("CreateModel", ModelName="chain", Containers=[{"Image": api.make.image}] * 2)
    api.make.endpoint("e2", PRODUCTION)
    assert text in api.refusal("CreateInferenceExperiment", **{**TRIAL, **more})
    assert api.call("ListInferenceExperiments") == {"InferenceExperiments": []}


@cases(
    "variants, config, text",
    case(
        "two production variants",
        [PRODUCTION, {**PRODUCTION, "VariantName": "b"}],
        {},
        "has 2 production variants",
    ),
    case(
        "another production variant",
        [{**PRODUCTION, "VariantName": "b"}],
        {},
        'has the production variant "b", not the SourceModelVariantName "main"',
    ),
    case("for components", [{}], {}, "hosts inference components"),
    case(
        "asynchronous",
        [PRODUCTION],
        {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://out/here"}}},
        "is asynchronous",
    ),
    case(
        "a shadow",
        [PRODUCTION],
        {"ShadowProductionVariants": [{**PRODUCTION, "VariantName": "old"}]},
        'has the shadow variant "old" already',
    ),
)
def test_an_endpoint_that_cannot_have_one(
    models: None, api: Api, variants: list[dict[str, Any]], config: dict[str, Any], text: str
) -> None:
    api.make.config("c", *variants, **config)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert "is Creating; an inference experiment" in api.refusal(
        "CreateInferenceExperiment", **TRIAL
    )
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    assert text in api.refusal("CreateInferenceExperiment", **TRIAL)


@pytest.mark.usefixtures("models")
def test_a_serverless_endpoint_cannot_have_one(api: Api) -> None:
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 1}
    one = {"VariantName": "main", "ModelName": "v1", "ServerlessConfig": serverless}
    api.call("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[one])
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    assert "is serverless" in api.refusal("CreateInferenceExperiment", **TRIAL)


@pytest.mark.usefixtures("models")
def test_names_and_endpoints_are_used_once(api: Api, create: Call) -> None:
    create()
    code, text = error(api, "CreateInferenceExperiment", **{**TRIAL, "Name": "Trial"})
    assert (code, "already existing" in text) == ("ResourceInUse", True)
    code, text = error(api, "CreateInferenceExperiment", **{**TRIAL, "Name": "second"})
    assert (code, f'has the inference experiment "{ARN}"' in text) == ("ResourceInUse", True)
    many = [MAIN, variant("next", "v2", 5000)]
    other = {**TRIAL, "Name": "large", "EndpointName": "f", "ModelVariants": many}
    assert error(api, "CreateInferenceExperiment", **other)[0] == "ResourceLimitExceeded"


@pytest.mark.usefixtures("models")
def test_tags(api: Api, create: Call) -> None:
    create(Tags=[{"Key": "team", "Value": "a"}])
    api.call("AddTags", ResourceArn=ARN, Tags=[{"Key": "cost", "Value": "b"}])
    assert len(api.call("ListTags", ResourceArn=ARN)["Tags"]) == 2
    api.call("DeleteTags", ResourceArn=ARN, TagKeys=["team"])
    assert api.call("ListTags", ResourceArn=ARN)["Tags"] == [{"Key": "cost", "Value": "b"}]


@pytest.fixture
def several(models: None, create: Call, turn: Callable[..., None], clock: ManualClock) -> float:
    """Create three experiments, ten seconds apart, and return the time of the first."""
    first_at = clock.now()
    for number, name in enumerate(("trial", "alpha", "beta")):
        create(Name=name, EndpointName=f"e{number}")
        clock.advance(10)
    turn(status=ExperimentStatus.RUNNING, modified_at=first_at + 100)
    return first_at


@cases(
    "more, names",
    case("newest first", {}, ["beta", "alpha", "trial"]),
    case("a part of the name", {"NameContains": "ta"}, ["beta"]),
    case("the type", {"Type": "ShadowMode"}, ["beta", "alpha", "trial"]),
    case("a status", {"StatusEquals": "Running"}, ["trial"]),
    case("a status that none has", {"StatusEquals": "Stopping"}, []),
    case("created after", {"CreationTimeAfter": 5.0}, ["beta", "alpha"]),
    case("created before", {"CreationTimeBefore": 5.0}, ["trial"]),
    case("modified after", {"LastModifiedTimeAfter": 50.0}, ["trial"]),
    case("modified before", {"LastModifiedTimeBefore": 50.0}, ["beta", "alpha"]),
    case("by name", {"SortBy": "Name", "SortOrder": "Ascending"}, ["alpha", "beta", "trial"]),
    case("by status", {"SortBy": "Status"}, ["trial", "beta", "alpha"]),
    case(
        "oldest first",
        {"SortBy": "CreationTime", "SortOrder": "Ascending"},
        ["trial", "alpha", "beta"],
    ),
)
def test_lists(api: Api, several: float, more: dict[str, Any], names: list[str]) -> None:
    given = {key: several + it if isinstance(it, float) else it for key, it in more.items()}
    found = api.call("ListInferenceExperiments", **given)["InferenceExperiments"]
    assert [it["Name"] for it in found] == names


def test_lists_by_pages(api: Api, several: float) -> None:
    first = api.call("ListInferenceExperiments", MaxResults=2)
    rest = api.call("ListInferenceExperiments", MaxResults=2, NextToken=first["NextToken"])
    pages = [[it["Name"] for it in page["InferenceExperiments"]] for page in (first, rest)]
    assert pages == [["beta", "alpha"], ["trial"]]
    assert "NextToken" not in rest
    shown = rest["InferenceExperiments"][0]
    assert (shown["Type"], shown["Status"], shown["RoleArn"]) == ("ShadowMode", "Running", ROLE)


def test_scopes_do_not_meet(api: Api, models: None, create: Call) -> None:
    create()
    elsewhere = Scope("123456789012", "eu-west-1")
    assert api.call_as(elsewhere, "ListInferenceExperiments") == {"InferenceExperiments": []}

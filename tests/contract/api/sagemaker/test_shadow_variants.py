"""Shadow variants: which configurations may have one, and how they are shown and changed."""

from typing import Any

from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus

MAIN = {
    "VariantName": "main",
    "ModelName": "m",
    "InstanceType": "ml.m5.xlarge",
    "InitialInstanceCount": 1,
}
SHADOW = {**MAIN, "VariantName": "shadow", "InitialVariantWeight": 0.5}
NO_MODEL = {name: value for name, value in MAIN.items() if name != "ModelName"}
SERVERLESS = {
    "VariantName": "shadow",
    "ModelName": "m",
    "ServerlessConfig": {"MemorySizeInMB": 2048, "MaxConcurrency": 1},
}


def create(api: Api, name: str, *shadows: dict[str, Any]) -> None:
    more = {"ShadowProductionVariants": list(shadows)} if shadows else {}
    api.call("CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=[MAIN], **more)


def test_a_shadow_is_echoed_and_shown_apart_from_production(api: Api) -> None:
    api.make.model()
    create(api, "c", SHADOW)
    shown = api.call("DescribeEndpointConfig", EndpointConfigName="c")
    assert shown["ShadowProductionVariants"] == [SHADOW]
    assert shown["ProductionVariants"] == [MAIN]
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    found = api.call("DescribeEndpoint", EndpointName="e")
    (shadow,), (main,) = found["ShadowProductionVariants"], found["ProductionVariants"]
    assert (main["VariantName"], main["CurrentWeight"]) == ("main", 1.0)
    assert (shadow["VariantName"], shadow["CurrentWeight"]) == ("shadow", 0.5)
    assert (shadow["CurrentInstanceCount"], shadow["DesiredInstanceCount"]) == (0, 1)
    assert shadow["VariantStatus"][0]["Status"] == "Creating"
    api.add_copy("1", "shadow", api.endpoint().active.generation, CopyPhase.READY)
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    (shadow,) = api.call("DescribeEndpoint", EndpointName="e")["ShadowProductionVariants"]
    assert shadow["CurrentInstanceCount"] == 1
    assert "VariantStatus" not in shadow


@cases(
    "production, shadows, more, message",
    case(
        "two shadows",
        [MAIN],
        [SHADOW, {**SHADOW, "VariantName": "second"}],
        {},
        "exactly one production variant and one shadow variant; 1 and 2 were given",
    ),
    case(
        "two production variants",
        [MAIN, {**MAIN, "VariantName": "other"}],
        [SHADOW],
        {},
        "exactly one production variant and one shadow variant; 2 and 1 were given",
    ),
    case(
        "the production variant's name",
        [MAIN],
        [{**SHADOW, "VariantName": "main"}],
        {},
        'variant names must be unique; "main" was given 2 times',
    ),
    case(
        "a shadow without a model",
        [MAIN],
        [{**NO_MODEL, "VariantName": "shadow"}],
        {},
        'ShadowProductionVariants needs a ModelName on variant "shadow"',
    ),
    case(
        "an endpoint for inference components",
        [NO_MODEL],
        [SHADOW],
        {"ExecutionRoleArn": "arn:aws:iam::123456789012:role/HostelryExecutionRole"},
        'ShadowProductionVariants needs a ModelName on variant "main"',
    ),
    case(
        "a serverless shadow",
        [MAIN],
        [SERVERLESS],
        {},
        "ShadowProductionVariants.1.ServerlessConfig is not possible",
    ),
    case(
        "requests that are queued",
        [MAIN],
        [SHADOW],
        {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://b/out"}}},
        "ShadowProductionVariants cannot be given beside AsyncInferenceConfig",
    ),
    case(
        "a shadow of many models",
        [MAIN],
        [{**SHADOW, "ModelName": "many"}],
        {},
        'multi-model container (Mode MultiModel) of model "many" is not supported',
    ),
    case(
        "a production variant of many models",
        [{**MAIN, "ModelName": "many"}],
        [SHADOW],
        {},
        'multi-model container (Mode MultiModel) of model "many" is not supported',
    ),
    case(
        "a model that is not there",
        [MAIN],
        [{**SHADOW, "ModelName": "gone"}],
        {},
        'Could not find model "arn:aws:sagemaker:us-west-2:123456789012:model/gone"',
    ),
    case(
        "no instances",
        [MAIN],
        [{name: it for name, it in SHADOW.items() if name != "InitialInstanceCount"}],
        {},
        "ShadowProductionVariants.1.InitialInstanceCount is required",
    ),
)
def test_a_shadow_that_cannot_be_is_refused(
    api: Api, production: list[Any], shadows: list[Any], more: dict[str, Any], message: str
) -> None:
    api.make.model()
    api.make.model(
        "many",
        PrimaryContainer={
            "Image": api.make.image,
            "Mode": "MultiModel",
            "ModelDataUrl": "s3://b/p/",
        },
    )
    assert message in api.refusal(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=production,
        ShadowProductionVariants=shadows,
        **more,
    )
    assert api.call("ListEndpointConfigs")["EndpointConfigs"] == []


def test_weight_and_count_of_a_shadow_change_and_are_retained(api: Api) -> None:
    api.make.model()
    create(api, "c", SHADOW)
    create(api, "again", SHADOW)
    create(api, "alone")
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    asked = {"VariantName": "shadow", "DesiredWeight": 0.25, "DesiredInstanceCount": 2}
    api.call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=[asked]
    )
    assert api.endpoint().active.shadow_share == 0.25
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    api.call(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="again",
        RetainAllVariantProperties=True,
    )
    coming = api.call("DescribeEndpoint", EndpointName="e")["PendingDeploymentSummary"]
    (shadow,) = coming["ShadowProductionVariants"]
    assert (shadow["DesiredWeight"], shadow["DesiredInstanceCount"]) == (0.25, 2)
    assert shadow["InstanceType"] == "ml.m5.xlarge"
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, pending=None, deadline_at=None)
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="alone")
    shown = api.call("DescribeEndpoint", EndpointName="e")
    assert "ShadowProductionVariants" not in shown["PendingDeploymentSummary"]
    assert len(shown["ShadowProductionVariants"]) == 1


@cases(
    "production, shadow, share",
    case("equal weights: all", 1.0, 1.0, 1.0),
    case("half the weight: half", 1.0, 0.5, 0.5),
    case("a quarter of the weight: a quarter", 4.0, 1.0, 0.25),
    case("a larger weight: all, once", 1.0, 3.0, 1.0),
    case("production without weight, which still has all: all", 0.0, 1.0, 1.0),
    case("no weight: none", 1.0, 0.0, 0.0),
    case("no weights: none", 0.0, 0.0, 0.0),
)
def test_the_share_follows_the_weights(
    api: Api, production: float, shadow: float, share: float
) -> None:
    # api.md 2.5: the raw form
    api.make.model()
    api.call(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=[{**MAIN, "InitialVariantWeight": production}],
        ShadowProductionVariants=[{**SHADOW, "InitialVariantWeight": shadow}],
    )
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert api.endpoint().active.shadow_share == share

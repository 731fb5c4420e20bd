"""Shadow variants: which configurations may have one, and how they are shown and changed."""

from collections.abc import Callable
from typing import Any

from tests.cases import case, cases

from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import Endpoint, EndpointStatus

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
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


def create(call: Call, name: str, *shadows: dict[str, Any]) -> None:
    more = {"ShadowProductionVariants": list(shadows)} if shadows else {}
    call("CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=[MAIN], **more)


def test_a_shadow_is_echoed_and_shown_apart_from_production(
    call: Call,
    make: Any,
    change: Callable[..., None],
    run: Callable[..., None],
    endpoint: Callable[[], Endpoint],
) -> None:
    make.model()
    create(call, "c", SHADOW)
    shown = call("DescribeEndpointConfig", EndpointConfigName="c")
    assert shown["ShadowProductionVariants"] == [SHADOW]
    assert shown["ProductionVariants"] == [MAIN]
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    found = call("DescribeEndpoint", EndpointName="e")
    (shadow,), (main,) = found["ShadowProductionVariants"], found["ProductionVariants"]
    assert (main["VariantName"], main["CurrentWeight"]) == ("main", 1.0)
    assert (shadow["VariantName"], shadow["CurrentWeight"]) == ("shadow", 0.5)
    assert (shadow["CurrentInstanceCount"], shadow["DesiredInstanceCount"]) == (0, 1)
    assert shadow["VariantStatus"][0]["Status"] == "Creating"
    run("1", "shadow", endpoint().active.generation, CopyPhase.READY)
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    (shadow,) = call("DescribeEndpoint", EndpointName="e")["ShadowProductionVariants"]
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
    make: Any,
    refused: Refused,
    call: Call,
    production: list[Any],
    shadows: list[Any],
    more: dict[str, Any],
    message: str,
) -> None:
    make.model()
    make.model(
        "many",
        PrimaryContainer={"Image": make.image, "Mode": "MultiModel", "ModelDataUrl": "s3://b/p/"},
    )
    assert message in refused(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=production,
        ShadowProductionVariants=shadows,
        **more,
    )
    assert call("ListEndpointConfigs")["EndpointConfigs"] == []


def test_weight_and_count_of_a_shadow_change_and_are_retained(
    call: Call, make: Any, change: Callable[..., None], endpoint: Callable[[], Endpoint]
) -> None:
    make.model()
    create(call, "c", SHADOW)
    create(call, "again", SHADOW)
    create(call, "alone")
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    asked = {"VariantName": "shadow", "DesiredWeight": 0.25, "DesiredInstanceCount": 2}
    call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=[asked]
    )
    assert endpoint().active.shadow_share == 0.25
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)
    call(
        "UpdateEndpoint",
        EndpointName="e",
        EndpointConfigName="again",
        RetainAllVariantProperties=True,
    )
    coming = call("DescribeEndpoint", EndpointName="e")["PendingDeploymentSummary"]
    (shadow,) = coming["ShadowProductionVariants"]
    assert (shadow["DesiredWeight"], shadow["DesiredInstanceCount"]) == (0.25, 2)
    assert shadow["InstanceType"] == "ml.m5.xlarge"
    change(status=EndpointStatus.IN_SERVICE, pending=None, deadline_at=None)
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="alone")
    shown = call("DescribeEndpoint", EndpointName="e")
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
    call: Call,
    make: Any,
    endpoint: Callable[[], Endpoint],
    production: float,
    shadow: float,
    share: float,
) -> None:
    # api.md 2.5: the raw form
    make.model()
    call(
        "CreateEndpointConfig",
        EndpointConfigName="c",
        ProductionVariants=[{**MAIN, "InitialVariantWeight": production}],
        ShadowProductionVariants=[{**SHADOW, "InitialVariantWeight": shadow}],
    )
    call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    assert endpoint().active.shadow_share == share

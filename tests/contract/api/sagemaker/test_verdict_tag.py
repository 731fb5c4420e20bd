"""The tag of endpoints whose updates are decided by a verdict."""

from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.allowance import Allowance
from hostelry.domain.endpoint import Endpoint, EndpointStatus

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
TRIAL = {
    "BlueGreenUpdatePolicy": {
        "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
        "TerminationWaitInSeconds": 300,
    }
}


def tagged(value: str) -> list[dict[str, str]]:
    return [{"Key": "hostelry:verdict", "Value": value}]


@pytest.fixture
def models(make: Any, change: Callable[..., None]) -> None:
    """An endpoint "e" of models in service, and a second configuration "c2"."""
    make.model()
    make.endpoint("e", {"ModelName": "m"})
    make.config("c2", {"ModelName": "m"})
    change(status=EndpointStatus.IN_SERVICE, deadline_at=None)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("value", "allowance"),
    [
        pytest.param(None, None, id="no tag"),
        pytest.param("off", None, id="off"),
        pytest.param("on", Allowance(), id="on"),
        pytest.param(
            "errors=0.05 alpha=0.001", Allowance(errors=0.05, alpha=0.001), id="with settings"
        ),
    ],
)
def test_an_update_takes_the_allowance_of_the_endpoints_tag(
    call: Call, endpoint: Callable[[], Endpoint], value: str | None, allowance: Allowance | None
) -> None:
    if value is not None:
        call("AddTags", ResourceArn=ARN + "endpoint/e", Tags=tagged(value))
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=TRIAL)
    call("DeleteTags", ResourceArn=ARN + "endpoint/e", TagKeys=["hostelry:verdict"])
    pending = endpoint().pending
    assert pending is not None
    assert pending.guard is not None
    assert pending.guard.allowance == allowance, "that of the time when the update began"


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param("", "it is empty", id="empty"),
        pytest.param("yes", '"yes" is no setting; there are errors, latency', id="a word"),
        pytest.param("on errors=0.1", '"on" is no setting', id="both"),
        pytest.param("errors=2", "errors is 2; it must be from 0 to 1", id="too large"),
        pytest.param("errors=0.1 errors=0.2", "a setting is given twice", id="twice"),
    ],
)
def test_a_wrong_value_is_refused(call: Call, refused: Refused, value: str, problem: str) -> None:
    arn = ARN + "endpoint/e"
    message = refused("AddTags", ResourceArn=arn, Tags=tagged(value))
    assert f'Tag hostelry:verdict is "{value}": {problem}' in message
    assert call("ListTags", ResourceArn=arn)["Tags"] == []


def test_it_is_for_endpoints_of_models_alone(call: Call, make: Any, refused: Refused) -> None:
    make.endpoint()
    make.component("base")
    words = "is for endpoints of models, whose updates it decides. What was to be tagged: "
    with pytest.raises(ServiceError, match=words + "endpoint for inference components"):
        make.endpoint("another", Tags=tagged("on"))
    with pytest.raises(ServiceError, match=words + "inference component"):
        make.component("other", Tags=tagged("on"))
    for what in ("endpoint/e", "inference-component/base", "endpoint-config/e-config"):
        assert words in refused("AddTags", ResourceArn=ARN + what, Tags=tagged("on"))


@pytest.mark.usefixtures("models")
def test_an_update_that_no_verdict_could_decide_is_refused(
    call: Call, refused: Refused, make: Any
) -> None:
    call("AddTags", ResourceArn=ARN + "endpoint/e", Tags=tagged("on"))
    update = {"EndpointName": "e", "EndpointConfigName": "c2"}
    for config in ({}, {"DeploymentConfig": {"BlueGreenUpdatePolicy": {
        **TRIAL["BlueGreenUpdatePolicy"], "TerminationWaitInSeconds": 0
    }}}):  # fmt: skip
        assert "would end before any verdict" in refused("UpdateEndpoint", **update, **config)
    call("UpdateEndpoint", **update, DeploymentConfig=TRIAL)


@pytest.mark.usefixtures("models")
def test_configurations_of_one_name_are_refused(
    call: Call, refused: Refused, make: Any, clock: ManualClock
) -> None:
    call("AddTags", ResourceArn=ARN + "endpoint/e", Tags=tagged("on"))
    call("DeleteEndpointConfig", EndpointConfigName="e-config")
    clock.advance(1)
    make.config("e-config", {"ModelName": "m"})
    update = {"EndpointName": "e", "EndpointConfigName": "e-config"}
    message = refused("UpdateEndpoint", **update, DeploymentConfig=TRIAL)
    assert "requests of both could not be counted apart" in message

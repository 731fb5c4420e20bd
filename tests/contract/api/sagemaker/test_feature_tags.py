"""The tags by which users choose Hostelry's own features: zero, pinned and verdict."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import InferenceComponent
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.traffic import Allowance

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
Stored = Callable[[str], InferenceComponent]
ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
TRIAL = {
    "BlueGreenUpdatePolicy": {
        "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
        "TerminationWaitInSeconds": 300,
    }
}


def chosen(value: str) -> list[dict[str, str]]:
    return [{"Key": "hostelry:zero", "Value": value}]


def test_a_component_has_its_choice_from_its_creation(make: Any, component: Stored) -> None:
    make.endpoint()
    make.component("plain")
    make.component("held", Tags=chosen("hold"))
    make.component("aws", Tags=chosen("compat"))
    found = [component(name).at_zero for name in ("plain", "held", "aws")]
    assert found == [None, AtZero.HOLD, AtZero.COMPAT]


def test_an_endpoint_has_one_too(make: Any, endpoint: Callable[[], Endpoint]) -> None:
    make.endpoint(Tags=chosen("compat"))
    assert endpoint().at_zero is AtZero.COMPAT


@pytest.mark.parametrize("kind", ["endpoint", "inference-component"])
def test_tags_change_it_on_what_runs(
    call: Call, make: Any, component: Stored, endpoint: Callable[[], Endpoint], kind: str
) -> None:
    make.endpoint()
    make.component("base")
    arn = ARN + ("endpoint/e" if kind == "endpoint" else "inference-component/base")

    def choices() -> tuple[AtZero | None, AtZero | None]:
        return endpoint().at_zero, component("base").at_zero

    def expected(choice: AtZero | None) -> tuple[AtZero | None, AtZero | None]:
        return (choice, None) if kind == "endpoint" else (None, choice)

    call("AddTags", ResourceArn=arn, Tags=chosen("compat"))
    assert choices() == expected(AtZero.COMPAT)
    call("AddTags", ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}])
    assert choices() == expected(AtZero.COMPAT)
    call("AddTags", ResourceArn=arn, Tags=chosen("hold"))
    assert choices() == expected(AtZero.HOLD)
    call("DeleteTags", ResourceArn=arn, TagKeys=["hostelry:zero"])
    assert choices() == (None, None)


@pytest.mark.parametrize("value", ["", "Hold", "wait", "true"])
def test_a_choice_that_there_is_not_is_refused(
    call: Call, make: Any, component: Stored, refused: Refused, value: str
) -> None:
    message = f'Tag hostelry:zero is "{value}"; it must be hold or compat'
    make.endpoint()
    with pytest.raises(ServiceError, match=message):
        make.endpoint("another", Tags=chosen(value))
    with pytest.raises(ServiceError, match=message):
        make.component("base", Tags=chosen(value))
    make.component("base")
    arn = ARN + "inference-component/base"
    assert message in refused("AddTags", ResourceArn=arn, Tags=chosen(value))
    assert call("ListTags", ResourceArn=arn)["Tags"] == []


def test_on_a_model_the_zero_tag_is_a_tag_like_any_other(call: Call, make: Any) -> None:
    make.model(Tags=chosen("perhaps"))
    assert call("ListTags", ResourceArn=ARN + "model/m")["Tags"] == chosen("perhaps")


def pinned(value: str = "true") -> list[dict[str, str]]:
    return [{"Key": "hostelry:pinned", "Value": value}]


@cases(
    "tags, expected",
    case("no tags", None, False),
    case("true", pinned(), True),
    case("false", pinned("false"), False),
    case("another tag", [{"Key": "pinned", "Value": "true"}], False),
)
def test_a_component_is_pinned_from_its_creation(
    make: Any, component: Stored, tags: list[dict[str, str]] | None, expected: bool
) -> None:
    make.endpoint()
    make.component("Base", Tags=tags)
    assert component("Base").pinned is expected


def test_tags_pin_and_free_a_component_that_runs(call: Call, make: Any, component: Stored) -> None:
    make.endpoint()
    make.component("Base")
    make.component("other")
    before, arn = component("Base"), ARN + "inference-component/base"
    call("AddTags", ResourceArn=arn, Tags=pinned())
    assert component("Base").pinned is True
    assert (component("Base").status, component("other").pinned) == (before.status, False)
    call("AddTags", ResourceArn=arn, Tags=pinned("false"))
    assert component("Base").pinned is False
    call("AddTags", ResourceArn=arn, Tags=pinned())
    call("AddTags", ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}])
    assert component("Base").pinned is True
    call("DeleteTags", ResourceArn=arn, TagKeys=["hostelry:pinned"])
    assert component("Base") == before


@cases(
    "value",
    case("yes", "yes"),
    case("in capitals", "True"),
    case("nothing", ""),
    case("a number", "1"),
)
def test_a_pin_that_is_neither_true_nor_false_is_refused(
    call: Call, make: Any, component: Stored, refused: Refused, value: str
) -> None:
    make.endpoint()
    message = (
        f'Tag hostelry:pinned is "{value}" on an inference component; it must be true or false.'
    )
    with pytest.raises(ServiceError) as caught:
        make.component("base", Tags=pinned(value))
    assert caught.value.message == message
    make.component("base", Tags=pinned())
    assert (
        refused("AddTags", ResourceArn=ARN + "inference-component/base", Tags=pinned(value))
        == message
    )
    assert call("ListTags", ResourceArn=ARN + "inference-component/base")["Tags"] == pinned()
    assert component("base").pinned is True


def test_on_a_model_the_pin_tag_is_a_tag_like_any_other(call: Call, make: Any) -> None:
    make.model(Tags=pinned("perhaps"))
    arn = ARN + "model/m"
    assert call("ListTags", ResourceArn=arn)["Tags"] == pinned("perhaps")


def test_too_many_tags_leave_the_pin_as_it_was(
    make: Any, component: Stored, refused: Refused
) -> None:
    make.endpoint()
    make.component("base", Tags=[{"Key": f"k{n}", "Value": ""} for n in range(50)])
    assert "at most 50" in refused(
        "AddTags", ResourceArn=ARN + "inference-component/base", Tags=pinned()
    )
    assert component("base").pinned is False


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
@cases(
    "value, allowance",
    case("no tag", None, None),
    case("off", "off", None),
    case("on", "on", Allowance()),
    case("with settings", "errors=0.05 alpha=0.001", Allowance(errors=0.05, alpha=0.001)),
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
@cases(
    "value, problem",
    case("empty", "", "it is empty"),
    case("a word", "yes", '"yes" is no setting; there are errors, latency'),
    case("both", "on errors=0.1", '"on" is no setting'),
    case("too large", "errors=2", "errors is 2; it must be from 0 to 1"),
    case("twice", "errors=0.1 errors=0.2", "a setting is given twice"),
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

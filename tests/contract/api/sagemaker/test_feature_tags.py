"""The tags by which users choose Hostelry's own features: zero, pinned and verdict."""

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.at_zero import AtZero
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.traffic import Allowance

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
TRIAL = {
    "BlueGreenUpdatePolicy": {
        "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
        "TerminationWaitInSeconds": 300,
    }
}


def chosen(value: str) -> list[dict[str, str]]:
    return [{"Key": "hostelry:zero", "Value": value}]


def test_a_component_has_its_choice_from_its_creation(api: Api) -> None:
    api.make.endpoint()
    api.make.component("plain")
    api.make.component("held", Tags=chosen("hold"))
    api.make.component("aws", Tags=chosen("compat"))
    found = [api.component(name).at_zero for name in ("plain", "held", "aws")]
    assert found == [None, AtZero.HOLD, AtZero.COMPAT]


def test_an_endpoint_has_one_too(api: Api) -> None:
    api.make.endpoint(Tags=chosen("compat"))
    assert api.endpoint().at_zero is AtZero.COMPAT


@pytest.mark.parametrize("kind", ["endpoint", "inference-component"])
def test_tags_change_it_on_what_runs(api: Api, kind: str) -> None:
    api.make.endpoint()
    api.make.component("base")
    arn = ARN + ("endpoint/e" if kind == "endpoint" else "inference-component/base")

    def choices() -> tuple[AtZero | None, AtZero | None]:
        return api.endpoint().at_zero, api.component("base").at_zero

    def expected(choice: AtZero | None) -> tuple[AtZero | None, AtZero | None]:
        return (choice, None) if kind == "endpoint" else (None, choice)

    api.call("AddTags", ResourceArn=arn, Tags=chosen("compat"))
    assert choices() == expected(AtZero.COMPAT)
    api.call("AddTags", ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}])
    assert choices() == expected(AtZero.COMPAT)
    api.call("AddTags", ResourceArn=arn, Tags=chosen("hold"))
    assert choices() == expected(AtZero.HOLD)
    api.call("DeleteTags", ResourceArn=arn, TagKeys=["hostelry:zero"])
    assert choices() == (None, None)


@pytest.mark.parametrize("value", ["", "Hold", "wait", "true"])
def test_a_choice_that_there_is_not_is_refused(api: Api, value: str) -> None:
    message = f'Tag hostelry:zero is "{value}"; it must be hold or compat'
    api.make.endpoint()
    with pytest.raises(ServiceError, match=message):
        api.make.endpoint("another", Tags=chosen(value))
    with pytest.raises(ServiceError, match=message):
        api.make.component("base", Tags=chosen(value))
    api.make.component("base")
    arn = ARN + "inference-component/base"
    assert message in api.refusal("AddTags", ResourceArn=arn, Tags=chosen(value))
    assert api.call("ListTags", ResourceArn=arn)["Tags"] == []


def test_on_a_model_the_zero_tag_is_a_tag_like_any_other(api: Api) -> None:
    api.make.model(Tags=chosen("perhaps"))
    assert api.call("ListTags", ResourceArn=ARN + "model/m")["Tags"] == chosen("perhaps")


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
    api: Api, tags: list[dict[str, str]] | None, expected: bool
) -> None:
    api.make.endpoint()
    api.make.component("Base", Tags=tags)
    assert api.component("Base").pinned is expected


def test_tags_pin_and_free_a_component_that_runs(api: Api) -> None:
    api.make.endpoint()
    api.make.component("Base")
    api.make.component("other")
    before, arn = api.component("Base"), ARN + "inference-component/base"
    api.call("AddTags", ResourceArn=arn, Tags=pinned())
    assert api.component("Base").pinned is True
    assert (api.component("Base").status, api.component("other").pinned) == (before.status, False)
    api.call("AddTags", ResourceArn=arn, Tags=pinned("false"))
    assert api.component("Base").pinned is False
    api.call("AddTags", ResourceArn=arn, Tags=pinned())
    api.call("AddTags", ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}])
    assert api.component("Base").pinned is True
    api.call("DeleteTags", ResourceArn=arn, TagKeys=["hostelry:pinned"])
    assert api.component("Base") == before


@cases(
    "value",
    case("yes", "yes"),
    case("in capitals", "True"),
    case("nothing", ""),
    case("a number", "1"),
)
def test_a_pin_that_is_neither_true_nor_false_is_refused(api: Api, value: str) -> None:
    api.make.endpoint()
    message = (
        f'Tag hostelry:pinned is "{value}" on an inference component; it must be true or false.'
    )
    with pytest.raises(ServiceError) as caught:
        api.make.component("base", Tags=pinned(value))
    assert caught.value.message == message
    api.make.component("base", Tags=pinned())
    assert (
        api.refusal("AddTags", ResourceArn=ARN + "inference-component/base", Tags=pinned(value))
        == message
    )
    assert api.call("ListTags", ResourceArn=ARN + "inference-component/base")["Tags"] == pinned()
    assert api.component("base").pinned is True


def test_on_a_model_the_pin_tag_is_a_tag_like_any_other(api: Api) -> None:
    api.make.model(Tags=pinned("perhaps"))
    arn = ARN + "model/m"
    assert api.call("ListTags", ResourceArn=arn)["Tags"] == pinned("perhaps")


def test_too_many_tags_leave_the_pin_as_it_was(api: Api) -> None:
    api.make.endpoint()
    api.make.component("base", Tags=[{"Key": f"k{n}", "Value": ""} for n in range(50)])
    assert "at most 50" in api.refusal(
        "AddTags", ResourceArn=ARN + "inference-component/base", Tags=pinned()
    )
    assert api.component("base").pinned is False


def tagged(value: str) -> list[dict[str, str]]:
    return [{"Key": "hostelry:verdict", "Value": value}]


@pytest.fixture
def models(api: Api) -> None:
    """An endpoint "e" of models in service, and a second configuration "c2"."""
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    api.make.config("c2", {"ModelName": "m"})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)


@pytest.mark.usefixtures("models")
@cases(
    "value, allowance",
    case("no tag", None, None),
    case("off", "off", None),
    case("on", "on", Allowance()),
    case("with settings", "errors=0.05 alpha=0.001", Allowance(errors=0.05, alpha=0.001)),
)
def test_an_update_takes_the_allowance_of_the_endpoints_tag(
    api: Api, value: str | None, allowance: Allowance | None
) -> None:
    if value is not None:
        api.call("AddTags", ResourceArn=ARN + "endpoint/e", Tags=tagged(value))
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="c2", DeploymentConfig=TRIAL)
    api.call("DeleteTags", ResourceArn=ARN + "endpoint/e", TagKeys=["hostelry:verdict"])
    pending = api.endpoint().pending
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
def test_a_wrong_value_is_refused(api: Api, value: str, problem: str) -> None:
    arn = ARN + "endpoint/e"
    message = api.refusal("AddTags", ResourceArn=arn, Tags=tagged(value))
    assert f'Tag hostelry:verdict is "{value}": {problem}' in message
    assert api.call("ListTags", ResourceArn=arn)["Tags"] == []


def test_it_is_for_endpoints_of_models_alone(api: Api) -> None:
    api.make.endpoint()
    api.make.component("base")
    words = "is for endpoints of models, whose updates it decides. What was to be tagged: "
    with pytest.raises(ServiceError, match=words + "endpoint for inference components"):
        api.make.endpoint("another", Tags=tagged("on"))
    with pytest.raises(ServiceError, match=words + "inference component"):
        api.make.component("other", Tags=tagged("on"))
    for what in ("endpoint/e", "inference-component/base", "endpoint-config/e-config"):
        assert words in api.refusal("AddTags", ResourceArn=ARN + what, Tags=tagged("on"))


@pytest.mark.usefixtures("models")
def test_an_update_that_no_verdict_could_decide_is_refused(api: Api) -> None:
    api.call("AddTags", ResourceArn=ARN + "endpoint/e", Tags=tagged("on"))
    update = {"EndpointName": "e", "EndpointConfigName": "c2"}
    for config in ({}, {"DeploymentConfig": {"BlueGreenUpdatePolicy": {
        **TRIAL["BlueGreenUpdatePolicy"], "TerminationWaitInSeconds": 0
    }}}):  # fmt: skip
        assert "would end before any verdict" in api.refusal("UpdateEndpoint", **update, **config)
    api.call("UpdateEndpoint", **update, DeploymentConfig=TRIAL)


@pytest.mark.usefixtures("models")
def test_configurations_of_one_name_are_refused(api: Api) -> None:
    api.call("AddTags", ResourceArn=ARN + "endpoint/e", Tags=tagged("on"))
    api.call("DeleteEndpointConfig", EndpointConfigName="e-config")
    api.clock.advance(1)
    api.make.config("e-config", {"ModelName": "m"})
    update = {"EndpointName": "e", "EndpointConfigName": "e-config"}
    message = api.refusal("UpdateEndpoint", **update, DeploymentConfig=TRIAL)
    assert "requests of both could not be counted apart" in message

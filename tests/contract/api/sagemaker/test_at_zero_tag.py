"""The tag that chooses what requests get while there is no copy."""

from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.errors import ServiceError
from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import InferenceComponent
from hostelry.domain.endpoint import Endpoint

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
Stored = Callable[[str], InferenceComponent]
ARN = "arn:aws:sagemaker:us-west-2:123456789012:"


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


def test_on_another_resource_it_is_a_tag_like_any_other(call: Call, make: Any) -> None:
    make.model(Tags=chosen("perhaps"))
    assert call("ListTags", ResourceArn=ARN + "model/m")["Tags"] == chosen("perhaps")

"""The tag that keeps a component's copies on the instances they are on."""

from collections.abc import Callable
from typing import Any

import pytest

from hostelry.base.errors import ServiceError
from hostelry.domain.component import InferenceComponent

Call = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
Stored = Callable[[str], InferenceComponent]
ARN = "arn:aws:sagemaker:us-west-2:123456789012:inference-component/"


def pinned(value: str = "true") -> list[dict[str, str]]:
    return [{"Key": "hostelry:pinned", "Value": value}]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        pytest.param(None, False, id="no tags"),
        pytest.param(pinned(), True, id="true"),
        pytest.param(pinned("false"), False, id="false"),
        pytest.param([{"Key": "pinned", "Value": "true"}], False, id="another tag"),
    ],
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
    before, arn = component("Base"), ARN + "base"
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


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("yes", id="yes"),
        pytest.param("True", id="in capitals"),
        pytest.param("", id="nothing"),
        pytest.param("1", id="a number"),
    ],
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
    assert refused("AddTags", ResourceArn=ARN + "base", Tags=pinned(value)) == message
    assert call("ListTags", ResourceArn=ARN + "base")["Tags"] == pinned()
    assert component("base").pinned is True


def test_on_another_resource_it_is_a_tag_like_any_other(call: Call, make: Any) -> None:
    make.model(Tags=pinned("perhaps"))
    arn = "arn:aws:sagemaker:us-west-2:123456789012:model/m"
    assert call("ListTags", ResourceArn=arn)["Tags"] == pinned("perhaps")


def test_too_many_tags_leave_the_pin_as_it_was(
    make: Any, component: Stored, refused: Refused
) -> None:
    make.endpoint()
    make.component("base", Tags=[{"Key": f"k{n}", "Value": ""} for n in range(50)])
    assert "at most 50" in refused("AddTags", ResourceArn=ARN + "base", Tags=pinned())
    assert component("base").pinned is False

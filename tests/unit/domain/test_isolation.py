"""HOSTELRY_ISOLATION: values that name levels, and values that are refused."""

import pytest
from tests.cases import case, cases

from hostelry.domain.isolation import CopyLevel, Isolation, PlaceLevel, read_isolation


@cases(
    "value, asked",
    case("no variable leaves all to the platform", None, Isolation()),
    case("an empty value does so too", " ", Isolation()),
    case("a level of the copy", "User", Isolation(copy=CopyLevel.USER)),
    case("a level of the place", "host", Isolation(place=PlaceLevel.HOST)),
    case(
        "one level of each",
        "container + instance",
        Isolation(copy=CopyLevel.CONTAINER, place=PlaceLevel.INSTANCE),
    ),
)
def test_a_value_names_levels(value: str | None, asked: Isolation) -> None:
    environment = {} if value is None else {"HOSTELRY_ISOLATION": value}
    assert read_isolation(environment) == asked


@cases(
    "value",
    case("an unknown level", "vm"),
    case("two levels of the copy", "user+container"),
    case("two levels of the place", "instance+host"),
    case("the default level of the place", "shared"),
    case("a plus without a level", "user+"),
    case("a long value", "x" * 10_000),
)
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="It names one of process, user, container") as refusal:
        read_isolation({"HOSTELRY_ISOLATION": value})
    assert len(str(refusal.value)) < 400

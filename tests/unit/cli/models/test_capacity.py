"""Numbers of copies: what is asked for, and whether it is there."""

from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.models.scale import (
    CapacityChange,
    SeenCapacity,
    bounds,
    is_there,
    scalable_id,
    tracking_policy,
    trouble,
)
from hostelry.cli.named import NamedModel, NameKind

COMPONENT = NamedModel(kind=NameKind.COMPONENT, endpoint="shop", component="llama")
ENDPOINT = NamedModel(kind=NameKind.ENDPOINT, endpoint="wine")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        pytest.param({}, "give --copies N, or --min", id="nothing"),
        pytest.param({"copies": 1, "most": 2}, "give one", id="a number and bounds"),
        pytest.param({"least": 3, "most": 2}, "--min 3 is more than --max 2", id="crossed bounds"),
    ],
)
def test_a_change_that_contradicts_itself_is_refused(asked: dict[str, Any], text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        CapacityChange(**asked)


KNOWN = {"MinCapacity": 1, "MaxCapacity": 3}


@pytest.mark.parametrize(
    ("change", "known", "found"),
    [
        pytest.param(CapacityChange(least=0, most=4), None, (0, 4), id="both"),
        pytest.param(CapacityChange(most=9), KNOWN, (1, 9), id="one of them stays"),
        pytest.param(CapacityChange(target=2.0), KNOWN, (1, 3), id="another target alone"),
    ],
)
def test_bounds(change: CapacityChange, known: Any, found: tuple[int, int]) -> None:
    assert tuple(bounds(change, known).values()) == found


@pytest.mark.parametrize(
    ("change", "known", "text"),
    [
        pytest.param(CapacityChange(most=4), None, "give --min and --max", id="one is missing"),
        pytest.param(CapacityChange(least=5), KNOWN, "would be 5 to 3", id="the other one crosses"),
    ],
)
def test_bounds_that_cannot_be(change: CapacityChange, known: Any, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        bounds(change, known)


@pytest.mark.parametrize(
    ("model", "resource", "metric"),
    [
        pytest.param(COMPONENT, "inference-component/llama", "PerCopy", id="a component"),
        pytest.param(ENDPOINT, "endpoint/wine/variant/A", "PerModel", id="a variant"),
    ],
)
def test_targets_and_policies(model: NamedModel, resource: str, metric: str) -> None:
    target = scalable_id(model, "A")
    policy = tracking_policy(target, 2.5)
    assert policy["ResourceId"] == resource
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert metric in tracking["PredefinedMetricSpecification"]["PredefinedMetricType"]
    assert tracking["TargetValue"] == 2.5


def seen(ready: int, desired: int, status: str = "InService", note: str = "") -> SeenCapacity:
    return SeenCapacity(ready=ready, desired=desired, status=status, note=note or None)


@pytest.mark.parametrize(
    ("state", "is_reached"),
    [
        pytest.param(seen(2, 2), True, id="all are ready"),
        pytest.param(seen(1, 2), False, id="one is missing"),
        pytest.param(seen(2, 2, "Updating"), False, id="still updating"),
        pytest.param(seen(3, 3), False, id="as many as before"),
    ],
)
def test_copies_are_there(state: SeenCapacity, is_reached: bool) -> None:
    assert is_there(state, 2, 2) is is_reached


@pytest.mark.parametrize(
    ("state", "unchanged_s", "text"),
    [
        pytest.param(seen(1, 3), 600.0, None, id="a slow start is none"),
        pytest.param(seen(1, 3, note="no room"), 1.0, None, id="it may find room"),
        pytest.param(
            seen(1, 3, note="no room"), 15.0, "1 of 3 fit and are ready; .* no room", id="no room"
        ),
        pytest.param(seen(0, 1, "Failed", "exited"), 0.0, "exited", id="a failure"),
    ],
)
def test_trouble(state: SeenCapacity, unchanged_s: float, text: str | None) -> None:
    found = trouble(state, unchanged_s)
    if text is None:
        assert found is None
    else:
        with pytest.raises(TerminalError, match=text):
            raise TerminalError(found)

"""The Fleet view over control's real account of planned endpoints."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    GB,
    NOW,
    Town,
    component,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.console.delta import diff, without_nulls
from hostelry.console.views import fleet
from hostelry.reconcile.placement_report import explained_endpoints
from hostelry.reconcile.record import load_all

MIB = 1024 * 1024


@pytest.fixture
def town() -> Iterator[Town]:
    made = Town()
    yield made
    made.close()


def placement(town: Town) -> dict[str, Any]:
    """Control's answer to /internal/placement."""
    found = explained_endpoints(load_all(town.state), town.facts())
    answered: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({"endpoints": found}))
    return answered


def shown(answer: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = without_nulls(fleet.document({"placement": answer}, {}, NOW))
    return found


def test_copies_are_packed_into_their_instances_each_with_its_reason(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(count=2))),
        component("chat", copies=2, requirements=needs(2, 16, 4)),
        component("embed", requirements=needs(0, 1, 0.5)),
    )
    town.settle()
    document = shown(placement(town))
    assert list(document["instances"]) == ["i-001", "i-002"]
    packed = {
        instance: sorted(
            (copy["component"], copy.get("devices", []), copy["cpus"], copy["memory"] // GB)
            for copy in found["copies"].values()
        )
        for instance, found in document["instances"].items()
    }
    assert packed == {
        "i-001": [("chat", [0, 1], 4, 16), ("embed", [], 0.5, 1)],
        "i-002": [("chat", [0, 1], 4, 16)],
    }
    copies = [it for host in document["instances"].values() for it in host["copies"].values()]
    assert all(it["why"].startswith("SPREAD: ") for it in copies)
    totals = document["totals"]
    assert (totals["copies"], totals["ready"], totals["unplaced"]) == (3, 3, 0)
    assert (totals["accelerators"], totals["acceleratorsReserved"]) == (8, 4)
    assert (totals["cpus"], totals["cpusReserved"]) == (96, 8.5)
    assert document["endpoints"]["ep"]["components"]["chat"]["ready"] == 2


def test_what_has_no_place_is_explained(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(count=1))),
        component("chat", copies=3, requirements=needs(2)),
    )
    town.settle()
    document = shown(placement(town))
    (found,) = document["unplaced"].values()
    assert (found["component"], found["count"], found["wanted"]) == ("chat", 1, 3)
    assert "needs 2 accelerators" in found["why_not"]
    assert "another instance" in found["would_help"]
    assert document["totals"]["unplaced"] == 1


@cases(
    "used_mib, expected_mib",
    case("not measured", None, None),
    case("nothing", 0, 0),
    case("a little", 1, 16),
    case("a whole step", 16, 16),
    case("between two steps", 1000, 1008),
)
def test_memory_in_use_changes_in_steps(
    town: Town, used_mib: int | None, expected_mib: int | None
) -> None:
    town.add(endpoint(deployment(variant(count=1))), component("chat"))
    town.settle()
    answer = placement(town)
    (it,) = answer["endpoints"][0]["copies"]
    it["memory_bytes"] = None if used_mib is None else used_mib * MIB
    (found,) = shown(answer)["instances"]["i-001"]["copies"].values()
    assert found.get("used") == (None if expected_mib is None else expected_mib * MIB)


def test_a_models_copy_has_its_instance_to_itself(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=1))), component("chat"))
    town.settle()
    answer = placement(town)
    answer["endpoints"][0]["copies"][0]["reserved"] = None
    document = shown(answer)
    assert document["instances"]["i-001"]["whole"]
    totals = document["totals"]
    assert (totals["cpusReserved"], totals["acceleratorsReserved"]) == (48, 4)


def test_before_control_has_answered_there_is_nothing() -> None:
    document = shown(None)
    assert (document["known"], document["endpoints"], document["instances"]) == (False, {}, {})


def test_the_patch_of_one_change_among_a_thousand_is_small(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=1))), component("chat"))
    town.settle()
    answer = placement(town)
    (one,) = answer["endpoints"][0]["copies"]
    many = [{**deepcopy(one), "id": f"copy-{number}"} for number in range(1000)]
    answer["endpoints"][0]["copies"] = many
    before = shown(answer)
    many[500]["memory_bytes"] = 64 * MIB
    many[500]["phase"] = "unhealthy"
    patch = diff(before, shown(answer))
    assert list(patch["instances"]["i-001"]["copies"]) == ["copy-500"]
    assert len(msgspec.json.encode(patch)) < 250

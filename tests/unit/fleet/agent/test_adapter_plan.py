import pytest
from tests.cases import case, cases

from hostelry.domain.copy import AdapterPhase, AdapterPlacement, AdapterStatus
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.agent.adapters import AdapterPlan, adapter_holder, plan_adapters
from hostelry.fleet.records import SAFE_ID


def placement(adapter_id: str) -> AdapterPlacement:
    source = ArtifactSource(uri=f"s3://b/{adapter_id}.tar.gz", kind=SourceKind.ARCHIVE)
    return AdapterPlacement(id=adapter_id, alias=adapter_id, source=source)


def known(*ids: str, phase: AdapterPhase = AdapterPhase.READY) -> dict[str, AdapterStatus]:
    return {it: AdapterStatus(id=it, phase=phase) for it in ids}


@cases(
    "desired, statuses, registered, expected",
    case("new", ["a"], known(), set(), AdapterPlan(register=(placement("a"),))),
    case("there already", ["a"], known("a"), {"a"}, AdapterPlan()),
    case(
        "one that failed stays failed: a repaired one has a new id",
        ["a"],
        known("a", phase=AdapterPhase.FAILED),
        set(),
        AdapterPlan(),
    ),
    case("not wanted", [], known("a"), {"a"}, AdapterPlan(unregister=("a",))),
    case("left by another agent", [], known(), {"a"}, AdapterPlan(unregister=("a",))),
    case("adopted: proven anew", ["a"], known(), {"a"}, AdapterPlan(register=(placement("a"),))),
    case(
        "taken back while it was under way",
        [],
        known("a", phase=AdapterPhase.PENDING),
        set(),
        AdapterPlan(unregister=("a",)),
    ),
)
def test_plan_adapters(
    desired: list[str],
    statuses: dict[str, AdapterStatus],
    registered: set[str],
    expected: AdapterPlan,
) -> None:
    assert plan_adapters([placement(it) for it in desired], statuses, registered) == expected


@pytest.mark.parametrize("adapter_id", ["es-1", "../../x", "a/b", "ü" * 200])
def test_a_holders_name_is_safe_whatever_the_adapter_is_called(adapter_id: str) -> None:
    holder = adapter_holder("c-1", adapter_id)
    assert all(SAFE_ID.fullmatch(part) for part in holder.split("/"))

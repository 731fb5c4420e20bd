"""The number of ranks, by the asked degree and the accelerators of the copy."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.settings.ranks import Holding, choose_ranks

VECTORS = "a model that gives vectors is computed by one process"
CPU: dict[str, Any] = {"devices": 0}
TRIED: dict[str, Any] = {"devices": 0, "cpu_ranks": True}
FOUR: dict[str, Any] = {"devices": 4}


def holding(reserved: float | None, devices: int, **fields: Any) -> Holding:
    return Holding(reserved=reserved, devices=devices, cpus=8, **fields)


@cases(
    "degree, reserved, place, ranks, words",
    case("a number", 2, 2, FOUR, 2, "2 ranks, which use 2 of 2 accelerators"),
    case("the reservation without a degree", None, 4, FOUR, 4, "4 ranks, which use 4 of 4"),
    case("as many as there are", "max", 3, FOUR, 3, "3 ranks"),
    case("a server alone on a machine", None, None, FOUR, 1, "one process"),
    case("a server alone that asks for all", "max", None, FOUR, 4, "4 of 4 accelerators"),
    case("an older control shows all devices", "max", 2, FOUR, 2, "2 of 2"),
    case("one accelerator", None, 1, {"devices": 1}, 1, "one process"),
    case("two on CPUs", 2, 2, CPU, 1, "one process on CPUs"),
    case("a reservation on CPUs", None, 4, CPU, 1, "one process on CPUs"),
    case("more on CPUs than are declared", 8, 2, CPU, 1, "one process on CPUs"),
    case("tried on CPUs", 2, 2, TRIED, 2, "2 of 2 declared accelerators"),
    case("tried on CPUs without a degree", None, 2, TRIED, 2, "2 ranks"),
    case("tried without any accelerator", 2, None, TRIED, 2, "2 of 8 CPUs"),
    case("all of no accelerator", "max", 0, TRIED, 1, "one process"),
)  # fmt: skip
def test_the_ranks(
    degree: Any, reserved: float | None, place: dict[str, Any], ranks: int, words: str
) -> None:
    choice = choose_ranks(degree, holding(reserved, **place))
    assert choice.ranks == ranks
    assert words in choice.reason


@cases(
    "degree, reserved, place, warning",
    case("what was asked", 4, 4, FOUR, None),
    case("nothing was asked on CPUs", None, 4, CPU, None),
    case("all of them on CPUs", "max", 4, CPU, None),
    case("a degree on CPUs", 2, 2, CPU,
        "tensor_parallel_degree is 2; on CPUs the model runs in one process"),
    case("reserved in vain", 1, 4, FOUR, "1 of 4 accelerators of this copy are used"),
    case("a machine that nobody reserved", 1, None, FOUR, None),
)  # fmt: skip
def test_the_warning(
    degree: Any, reserved: float | None, place: dict[str, Any], warning: str | None
) -> None:
    found = choose_ranks(degree, holding(reserved, **place)).warning
    assert found is None if warning is None else warning in str(found)


@cases(
    "degree, reserved, place, message",
    case("more ranks than devices", 8, 4, FOUR, "asks for 8 ranks, which need 8 accelerators; this "
        "copy has 4"),
    case("more ranks than are reserved", 3, 2, FOUR, "need 3 accelerators; this copy has 2"),
    case("more reserved than there are", None, 4, {"devices": 2}, "the reservation asks for 4 "
        "ranks, which need 4 accelerators; this copy has 2"),
    case("more than are declared", 4, 2, TRIED, "need 4 declared accelerators; this copy has 2"),
    case("more than there are CPUs", 9, None, TRIED, "need 9 CPUs; this copy has 8"),
)  # fmt: skip
def test_too_few_accelerators(
    degree: Any, reserved: float | None, place: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        choose_ranks(degree, holding(reserved, **place))


@cases(
    "degree, place, stages, ranks, num_stages",
    case("ranks of stages", 2, FOUR, 2, 2, 2),
    case("all accelerators", "max", FOUR, 2, 2, 2),
    case("the reservation", None, FOUR, 4, 1, 4),
    case("on CPUs", 2, CPU, 2, 1, 1),
)
def test_stages(
    degree: Any, place: dict[str, Any], stages: int, ranks: int, num_stages: int
) -> None:
    choice = choose_ranks(degree, holding(4, **place), pipeline=stages)
    assert (choice.ranks, choice.stages) == (ranks, num_stages)
    with pytest.raises(ValueError, match="4 ranks of 2 stages, which need 8 accelerators"):
        choose_ranks(4, holding(4, 4), pipeline=2)


def test_a_model_for_one_process_has_one_rank() -> None:
    for degree in (None, "max", 1):
        choice = choose_ranks(degree, holding(4, 4), whole=VECTORS)
        assert (choice.ranks, VECTORS in choice.reason) == (1, True)
    with pytest.raises(ValueError, match=f"tensor_parallel_degree is 2, but {VECTORS}"):
        choose_ranks(2, holding(4, 4), whole=VECTORS)

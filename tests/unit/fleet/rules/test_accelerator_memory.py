"""Memory of accelerators that containers of many models declare."""

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.fleet.rules.devices import (
    CAPACITY,
    EACH_MODEL,
    MB,
    AcceleratorMemory,
    parse_accelerator_memory,
)


@cases(
    "environment, capacity_bytes, model_bytes",
    case("nothing is counted without a word", {}, None, 0),
    case("nor without what there is", {EACH_MODEL: "512"}, None, 0),
    case("models may declare all", {CAPACITY: "16384"}, 16384 * MB, 0),
    case("both", {CAPACITY: "100", EACH_MODEL: "40"}, 100 * MB, 40 * MB),
)
def test_what_a_container_declares(
    environment: dict[str, str], capacity_bytes: int | None, model_bytes: int
) -> None:
    expected = AcceleratorMemory(capacity_bytes=capacity_bytes, model_bytes=model_bytes)
    assert parse_accelerator_memory(environment) == expected


@pytest.mark.parametrize("name", [CAPACITY, EACH_MODEL])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "16G", "1" * 30, "16777217", "\u0663"])
def test_what_is_no_number_of_megabytes_is_refused(name: str, value: str) -> None:
    with pytest.raises(TerminalError, match=f"{name} is .*from 1 to 16777216"):
        parse_accelerator_memory({name: value})

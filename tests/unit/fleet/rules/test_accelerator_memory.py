"""Memory of accelerators that containers of many models declare."""

import pytest

from hostelry.base.errors import TerminalError
from hostelry.fleet.rules.devices import (
    CAPACITY,
    EACH_MODEL,
    MB,
    AcceleratorMemory,
    accelerator_memory,
)


@pytest.mark.parametrize(
    ("environment", "capacity_bytes", "model_bytes"),
    [
        pytest.param({}, None, 0, id="nothing is counted without a word"),
        pytest.param({EACH_MODEL: "512"}, None, 0, id="nor without what there is"),
        pytest.param({CAPACITY: "16384"}, 16384 * MB, 0, id="models may declare all"),
        pytest.param({CAPACITY: "100", EACH_MODEL: "40"}, 100 * MB, 40 * MB, id="both"),
    ],
)
def test_what_a_container_declares(
    environment: dict[str, str], capacity_bytes: int | None, model_bytes: int
) -> None:
    expected = AcceleratorMemory(capacity_bytes=capacity_bytes, model_bytes=model_bytes)
    assert accelerator_memory(environment) == expected


@pytest.mark.parametrize("name", [CAPACITY, EACH_MODEL])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "16G", "1" * 30, "16777217", "\u0663"])
def test_what_is_no_number_of_megabytes_is_refused(name: str, value: str) -> None:
    with pytest.raises(TerminalError, match=f"{name} is .*from 1 to 16777216"):
        accelerator_memory({name: value})

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.fleet.rules.devices import (
    assign_devices,
    device_variables,
    devices_of_copy,
    real_devices,
)

NODES = ["null", "nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia0x"]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        pytest.param({}, ("0", "2", "10"), id="every device node"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "2, 0"}, ("2", "0"), id="the operator's choice"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-ab,"}, ("GPU-ab",), id="names are kept"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, (), id="the operator wants none"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, (), id="the operator wants none, as -1"),
    ],
)
def test_the_devices_of_a_machine(operator: dict[str, str], expected: tuple[str, ...]) -> None:
    assert real_devices(operator, NODES) == expected


@pytest.mark.parametrize(
    ("declared", "real", "held", "expected"),
    [
        pytest.param(2, "0123", [], "01", id="the first ones of an empty machine"),
        pytest.param(2, "0123", ["01"], "23", id="what another instance has is left to it"),
        pytest.param(2, "012", ["0"], "12", id="free ones need not be the first"),
        pytest.param(1, "01", ["0", "1", "1"], "0", id="shared where none is free: the rarest"),
        pytest.param(4, "01", [], "", id="fewer than declared are none"),
        pytest.param(0, "01", [], "", id="an instance without accelerators gets none"),
        pytest.param(1, "", [], "", id="a laptop has none"),
        pytest.param(1, "01", ["7"], "0", id="devices that are gone count for nothing"),
    ],
)
def test_the_devices_of_an_instance(
    declared: int, real: str, held: list[str], expected: str
) -> None:
    assert "".join(assign_devices(declared, real, held)) == expected


@given(
    st.lists(st.integers(1, 3), max_size=6),
    st.integers(0, 8),
)
def test_no_device_is_shared_while_another_is_free(declared: list[int], num_real: int) -> None:
    real = [str(it) for it in range(num_real)]
    held: list[tuple[str, ...]] = []
    for count in declared:
        held.append(assign_devices(count, real, held))
        assert len(set(held[-1])) == len(held[-1]) in (0, count)
    uses = [sum(device in it for it in held) for device in real]
    assert max(uses, default=0) - min(uses, default=0) <= 1


@pytest.mark.parametrize(
    ("ids", "accelerators", "own", "expected"),
    [
        pytest.param((1,), 1.0, ("a", "b"), ("b",), id="by its number on the instance"),
        pytest.param((1,), 1.0, (), (), id="declared only"),
        pytest.param((), None, ("a", "b"), ("a", "b"), id="the instance to itself"),
        pytest.param((), 0.0, ("a",), (), id="none reserved"),
    ],
)
def test_the_devices_of_a_copy(
    ids: tuple[int, ...], accelerators: float | None, own: tuple[str, ...], expected: object
) -> None:
    assert devices_of_copy(ids, accelerators, own) == expected


def test_no_devices_are_named_and_not_left_open() -> None:
    assert device_variables(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.fleet.rules.devices import (
    CAPACITY,
    EACH_MODEL,
    MB,
    AcceleratorMemory,
    assign_devices,
    compute_device_share,
    device_variables,
    find_real_devices,
    parse_accelerator_memory,
    select_copy_devices,
)

NODES = ["null", "nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia0x"]


@cases(
    "operator, expected",
    case("every device node", {}, ("0", "2", "10")),
    case("the operator's choice", {"CUDA_VISIBLE_DEVICES": "2, 0"}, ("2", "0")),
    case("names are kept", {"CUDA_VISIBLE_DEVICES": "GPU-ab,"}, ("GPU-ab",)),
    case("the operator wants none", {"CUDA_VISIBLE_DEVICES": ""}, ()),
    case("the operator wants none, as -1", {"CUDA_VISIBLE_DEVICES": "-1"}, ()),
)
def test_the_devices_of_a_machine(operator: dict[str, str], expected: tuple[str, ...]) -> None:
    assert find_real_devices(operator, NODES) == expected


@cases(
    "declared, real, held, expected",
    case("the first ones of an empty machine", 2, "0123", [], "01"),
    case("what another instance has is left to it", 2, "0123", ["01"], "23"),
    case("free ones need not be the first", 2, "012", ["0"], "12"),
    case("shared where none is free: the rarest", 1, "01", ["0", "1", "1"], "0"),
    case("fewer than declared are none", 4, "01", [], ""),
    case("an instance without accelerators gets none", 0, "01", [], ""),
    case("a laptop has none", 1, "", [], ""),
    case("devices that are gone count for nothing", 1, "01", ["7"], "0"),
)
def test_the_devices_of_an_instance(
    declared: int, real: str, held: list[str], expected: str
) -> None:
    assert "".join(assign_devices(declared, real, held)) == expected


@cases(
    "devices, held, containers, share",
    case("alone on a device", "0", ["0", "1"], 1, 1),
    case("two instances on a device", "0", ["0", "0", "1"], 1, 1 / 2),
    case("the most shared of several devices counts", "01", ["01", "1", "1"], 1, 1 / 3),
    case("containers of one copy", "0", ["0"], 2, 1 / 2),
    case("both", "0", ["0", "0"], 2, 1 / 4),
    case("other instances are not known", "0", [], 1, 1),
    case("no device", "", ["0"], 1, 1),
)
def test_the_share_of_a_device(
    devices: str, held: list[str], containers: int, share: float
) -> None:
    assert compute_device_share(devices, held, containers) == share


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


@cases(
    "ids, accelerators, own, expected",
    case("by its number on the instance", (1,), 1.0, ("a", "b"), ("b",)),
    case("declared only", (1,), 1.0, (), ()),
    case("the instance to itself", (), None, ("a", "b"), ("a", "b")),
    case("none reserved", (), 0.0, ("a",), ()),
)
def test_the_devices_of_a_copy(
    ids: tuple[int, ...], accelerators: float | None, own: tuple[str, ...], expected: object
) -> None:
    assert select_copy_devices(ids, accelerators, own) == expected


def test_no_devices_are_named_and_not_left_open() -> None:
    assert device_variables(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}


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

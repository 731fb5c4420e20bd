"""Decisions of the engine's process."""

import pytest
import torch

from hostelry.containers.lmi.engine_process import lacks_memory


def failure_of(size: int) -> RuntimeError:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(size, dtype=torch.int8)
    return failure.value


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        pytest.param(failure_of(1 << 62), True, id="the CPU's allocator gives up"),
        pytest.param(torch.OutOfMemoryError("CUDA"), True, id="an accelerator's memory is full"),
        pytest.param(MemoryError(), True, id="Python's own memory is full"),
        pytest.param(failure_of(-1), False, id="any other failure of torch"),
    ],
)
def test_what_is_a_lack_of_memory(error: BaseException, lacks: bool) -> None:
    assert lacks_memory(error) is lacks

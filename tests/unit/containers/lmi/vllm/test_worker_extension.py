"""Calls to vLLM's workers, over stand-ins for its objects."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hostelry.containers.lmi.vllm.worker_extension import AdapterCheck


class PunicaWrapperCPU:
    """As vLLM's, whose kernels take -1 for the last slot."""

    token_lora_indices = torch.tensor([0, -1, 1])

    def add_shrink(self, y: Any, x: torch.Tensor, a: torch.Tensor, scale: float) -> None:
        for each in y:
            each[:] = scale * x * a[self.token_lora_indices]


class PunicaWrapperGPU(PunicaWrapperCPU):
    """One whose kernels skip -1."""


def extended(wrapper: Any) -> AdapterCheck:
    check = AdapterCheck()
    manager = SimpleNamespace(punica_wrapper_mapping={"one": wrapper, "other": wrapper})
    lora_manager = SimpleNamespace(_adapter_manager=manager)
    check.model_runner = SimpleNamespace(lora_manager=lora_manager)
    return check


@pytest.mark.parametrize(
    ("wrapper", "base"),
    [
        pytest.param(PunicaWrapperCPU(), 0.0, id="on CPUs the base is spared"),
        pytest.param(PunicaWrapperGPU(), 6.0, id="elsewhere vLLM's own kernels run as they are"),
    ],
)
def test_rows_of_the_base_get_nothing_of_an_adapter(wrapper: Any, base: float) -> None:
    check = extended(wrapper)
    for _ in range(2):
        check.spare_base_rows()
    y = (torch.ones(3, 2),)
    wrapper.add_shrink(y, torch.ones(3, 2), torch.tensor([[1.0], [3.0]]), 2.0)
    assert y[0][:, 0].tolist() == [2.0, base, 6.0]

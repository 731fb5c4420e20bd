"""The devices that a test runs on, as parameters: the CPU, and CUDA if it is available."""

import pytest
import torch

DEVICES = (
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
)

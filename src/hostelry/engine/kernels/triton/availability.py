"""Check whether a device can run Triton's kernels."""

import importlib.util

import torch

_LEAST_CAPABILITY = (8, 0)  # tensor cores that take tf32


def why_unavailable(device: torch.device) -> str | None:
    """Why this device cannot run Triton's kernels. None if it can."""
    if device.type != "cuda":
        return f"Triton's kernels are for CUDA devices; this is {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; pip install hostelry[cuda]"
    capability = torch.cuda.get_device_capability(device)
    if capability < _LEAST_CAPABILITY:
        found, least = (".".join(map(str, it)) for it in (capability, _LEAST_CAPABILITY))
        return f"the device has compute capability {found}; Triton's kernels need {least}"
    return None

"""A program for the engine's interpreter that prints the reports of torch and the kernels as JSON.

It is a separate process, because torch takes seconds to import, and a broken driver can hang it.
"""

import json
from importlib.metadata import PackageNotFoundError, version

import torch

from hostelry.engine.kernels.native.library import available_variants, why_unavailable
from hostelry.engine.kernels.triton.availability import why_unavailable as why_not_on_device


def main() -> None:
    """Print one object, with the fields of `EngineModules`."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": [torch.cuda.get_device_name(it) for it in range(count)],
        "kernels": available_variants(),
        "no_kernels": why_unavailable(),
        "triton": _triton(),
        "no_triton": why_not_on_device(torch.device("cuda")) if count else None,
    }
    print(json.dumps(found))


def _triton() -> str | None:
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()

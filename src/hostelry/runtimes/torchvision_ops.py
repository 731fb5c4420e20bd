"""Makes torchvision importable with a torch that its compiled part was not built for.

The registry has torchvision for CUDA only. Its Python part is enough to read images, and works with
every build of torch. But it needs two operators of the compiled part, which must be declared
before. `install.py` copies this module into a runtime, whose interpreter imports it at its start.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class BeforeTorchvision(MetaPathFinder):
    """Declares the operators when torchvision is imported, and leaves finding it to others."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Always None."""
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            declare_operators()
        return None


def declare_operators() -> None:
    """Declare the operators that torch does not know."""
    import torch

    for name in OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", SIGNATURE)


sys.meta_path.insert(0, BeforeTorchvision())

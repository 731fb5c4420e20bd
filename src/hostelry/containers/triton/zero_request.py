"""A request of zeros by a model's configuration, which proves that it answers. Pure."""

import math
from typing import Any

MAX_VALUES = 4_000_000  # as JSON, 8 MB
ZEROS: dict[str, Any] = {"BOOL": False, "BYTES": ""}
NOT_IN_JSON = ("FP16", "BF16")


def zero_request(config: dict[str, Any]) -> dict[str, Any] | None:
    """The request by a configuration as Triton shows it; None where zeros cannot be known to fit.

    Each dimension that is free is 1. Optional inputs are left out.
    """
    inputs = []
    is_batched = int(config.get("max_batch_size", 0)) > 0
    for each in config.get("input", []):
        if each.get("optional"):
            continue
        if each.get("is_shape_tensor") or each.get("allow_ragged_batch"):
            return None
        kind = datatype(str(each.get("data_type", "")))
        shape = [max(1, int(it)) for it in each.get("dims", [])]
        count = math.prod(shape)
        if count > MAX_VALUES or kind in NOT_IN_JSON:
            return None
        zero = ZEROS.get(kind, 0)
        inputs.append(
            {
                "name": each.get("name", ""),
                "datatype": kind,
                "shape": [1, *shape] if is_batched else shape,
                "data": [zero] * count,
            }
        )
    return {"inputs": inputs} if inputs else None


def datatype(data_type: str) -> str:
    """A configuration's data type as requests name it."""
    kind = data_type.removeprefix("TYPE_")
    return "BYTES" if kind == "STRING" else kind

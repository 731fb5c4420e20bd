"""The adapter components of one base."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from hostelry.cli.models.listing import ModelRow
from hostelry.cli.models.ls import NUM_THREADS, component_row
from hostelry.cli.named import rows_of


def adapter_rows(sagemaker: Any, endpoint: str, base: str) -> list[ModelRow]:
    """A row for each adapter component of `base`, by name."""
    listed = rows_of(
        sagemaker, "list_inference_components", "InferenceComponents", EndpointNameEquals=endpoint
    )
    others = [it for it in listed if it["InferenceComponentName"] != base]
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        rows = list(threads.map(partial(component_row, sagemaker), others))
    mine = [it for it in rows if it is not None and it.base == base]
    return sorted(mine, key=lambda it: it.name)

"""Triton's pages for Prometheus as one, with the model of each among its labels. Pure."""

from collections.abc import Mapping

from hostelry.base.metrics_page import PageJoin, parsed_page

TARGET = "target_model"
MAX_BYTES = 8 * 1024 * 1024
# Of the whole machine, which each server measures again.
LEFT_OUT = ("nv_cpu_", "nv_gpu_", "nv_energy_", "nv_pinned_")
RESERVED = ("hostelry_",)  # the front's own; models' code can add metrics to Triton's


def merged(pages: Mapping[str, str]) -> str:
    """One page of several, each family once; the pages are by target, which may be empty."""
    join = PageJoin(MAX_BYTES)
    for target, page in pages.items():
        join.add({TARGET: target} if target else {}, parsed_page(page.encode(), RESERVED))
    return join.text(LEFT_OUT)

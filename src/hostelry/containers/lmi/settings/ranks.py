"""The number of ranks of a model: processes that each hold a part of it. Pure.

    computes on      asked degree   ranks
    ---------------  -------------  ------------------------------------------------------------
    accelerators     none           one for each reserved accelerator, 1 without a reservation
                     max            one for each accelerator of the copy
                     N              N, refused if the copy has fewer accelerators
    CPUs             any            1, with a warning if N is more than 1
    CPUs, the        as above       the declared accelerators count, else the CPUs if N is asked.
    operator asks                   So ranks can be tried without accelerators

A model that one process must compute has 1 rank, and a larger N is refused.
"""

import math
from typing import Literal

import msgspec

MAX = "max"
MAX_DEGREE = 1024
OPTION = "tensor_parallel_degree"
# The operator who starts the server sets it, not the model's author.
CPU_RANKS_VARIABLE = "HOSTELRY_CPU_RANKS"

Degree = int | Literal["max"]


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a copy that its ranks may use.

    `reserved` are the declared accelerators of its reservation (None without a reservation),
    `devices` the real accelerators that it sees. Without any it computes on CPUs, in several
    processes only with `cpu_ranks`.
    """

    reserved: float | None
    devices: int
    cpus: int
    cpu_ranks: bool = False


class RankUnits(msgspec.Struct, frozen=True, kw_only=True):
    """The number and kind of what ranks use, one each."""

    count: int
    kind: str
    is_reserved: bool


class RankChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of ranks and of the stages of each, and the reason as a sentence.

    The warning says that a number was not followed, or that accelerators are not used.
    """

    ranks: int
    stages: int = 1
    reason: str
    warning: str | None = None


def choose_ranks(
    degree: Degree | None, holding: Holding, *, whole: str | None = None, pipeline: int = 1
) -> RankChoice:
    """The number of ranks of tensor parallelism, each with `pipeline` stages.

    `whole` says why one process must compute the model, if that is so. Raises ValueError with both
    numbers if the copy has too few accelerators.
    """
    on_cpus = not holding.devices
    if on_cpus and not holding.cpu_ranks:
        return _choose_one_process(degree, pipeline)
    if whole is not None:
        if degree not in (None, MAX, 1):
            raise ValueError(f"{OPTION} is {degree}, but {whole}: leave it out")
        return RankChoice(ranks=1, reason=f"the model runs in one process: {whole}")
    reserved = math.ceil(holding.reserved or 0)
    if on_cpus:
        held, kind = reserved or holding.cpus, "declared accelerators" if reserved else "CPUs"
        largest = reserved
    else:
        held = min(reserved or holding.devices, holding.devices)
        largest, kind = held, "accelerators"
    if isinstance(degree, int):
        ranks = degree
    else:
        ranks = max(1, (reserved if degree is None else largest) // pipeline)
    return _check_ranks(
        ranks,
        pipeline,
        RankUnits(count=held, kind=kind, is_reserved=bool(reserved)),
        "the reservation asks" if degree is None else f"{OPTION} {degree} asks",
    )


def _choose_one_process(degree: Degree | None, pipeline: int) -> RankChoice:
    """The single rank on CPUs, which uses all CPUs of the copy."""
    asked = {OPTION: degree, "pipeline_parallel_degree": pipeline}
    larger = [f"{name} is {it}" for name, it in asked.items() if isinstance(it, int) and it > 1]
    return RankChoice(
        ranks=1,
        reason="the model runs in one process on CPUs",
        warning=None
        if not larger
        else f"{' and '.join(larger)}; on CPUs the model runs in one process, with all CPUs of the "
        f"copy and the same answers. {CPU_RANKS_VARIABLE}=1, a variable of the operator, makes "
        "several processes",
    )


def _check_ranks(ranks: int, pipeline: int, held: RankUnits, asked: str) -> RankChoice:
    """The choice of `ranks`. Raises ValueError if they need more than `held`."""
    needed = ranks * pipeline
    stages = f" of {pipeline} stages" if pipeline > 1 else ""
    if needed > held.count:
        raise ValueError(
            f"{asked} for {ranks} ranks{stages}, which need {needed} {held.kind}; this copy has "
            f"{held.count}: reserve more, or give a smaller {OPTION}"
        )
    used = f"{needed} of {held.count} {held.kind}"
    return RankChoice(
        ranks=ranks,
        stages=pipeline,
        reason="the model runs in one process"
        if needed == 1
        else f"the model is divided over {ranks} ranks{stages}, which use {used}",
        warning=f"{used} of this copy are used, as {OPTION} asks"
        if held.is_reserved and needed < held.count
        else None,
    )

"""Gates: the options that cannot work for a group of models, with the reason. PURE.

gate             an option fails if
---------------  ---------------------------------------------------------------------------------
memory           no machine has the memory, CPUs or accelerators that a model needs there
number           it takes fewer, or more, models or instances than there are
framework        models of one multi-model container have several frameworks, or one that has no
                 such container
isolation        a model needs more separation
class            an answer in the call is needed, and the option gives it later
payload, answer  a body is larger than the limit
time             a call may take longer than the limit
streaming        a stream is needed, and the option has none
capture          data capture is needed, and the option refuses it
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.advisor.options import (
    OPTION_LIMITS,
    HostingOption,
    get_isolation,
    get_option_models,
)
from hostelry.advisor.values import (
    GIB,
    ISOLATION_TEXT,
    MIB,
    FitMachine,
    FitMix,
    FitModel,
    LatencyClass,
)
from hostelry.api.sagemaker.model import MAX_CONTAINERS
from hostelry.api.sagemaker.serverless import MAX_ENDPOINTS, MAX_TOTAL_CONCURRENCY
from hostelry.domain.serverless import BYTES_PER_MB, MAX_MEMORY_MB, MEMORY_STEP_MB
from hostelry.fleet.agent.models.copy_models import MODEL_SHARE

ONE_MODEL_FRAMEWORKS = ("lmi", "graph")  # their built-in servers refuse Mode MultiModel
PER_MODEL = (HostingOption.DEDICATED, HostingOption.ASYNCHRONOUS, HostingOption.BATCH)


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons against an option, most general first. None of them: it can work."""

    option: HostingOption
    reasons: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the option can work."""
        return not self.reasons


def check_gates(option: HostingOption, group: Sequence[FitModel], mix: FitMix) -> GateResult:
    """The reasons against an option for the models of a group."""
    models = get_option_models(option, group)
    reasons = [*_OF_GROUP.get(option, _check_none)(models, mix)]
    reasons += _list_first(models, lambda it: _list_limits(option, it, mix))
    if not reasons and option is not HostingOption.SERVERLESS:
        reasons += _check_machines(option, models, mix)
    return GateResult(option=option, reasons=tuple(reasons))


def fits(option: HostingOption, models: Sequence[FitModel], machine: FitMachine) -> str | None:
    """The reason why the models do not fit on a machine together, each on its own, or None."""
    if option is HostingOption.MULTI_CONTAINER:
        return _find_lack(models, machine, machine.shape.memory_bytes, is_shared=True)
    room = machine.shape.memory_bytes
    if option is HostingOption.MULTI_MODEL:
        room = int(room * MODEL_SHARE)
        models = [replace(it, memory_bytes=it.held_bytes) for it in models]
    return next((it for one in models if (it := _find_lack([one], machine, room))), None)


def get_serverless_memory_mb(model: FitModel) -> int:
    """The smallest MemorySizeInMB that holds a model."""
    return math.ceil(model.memory_bytes / BYTES_PER_MB / MEMORY_STEP_MB) * MEMORY_STEP_MB


def _find_lack(
    models: Sequence[FitModel], machine: FitMachine, room: int, *, is_shared: bool = False
) -> str | None:
    memory = sum(it.memory_bytes for it in models)
    who = f"the {len(models)} models together need" if is_shared else f"{models[0].name} needs"
    if memory > room:
        return f"{who} {memory / GIB:.1f} GiB, {machine.type} has {room / GIB:.1f} for models"
    cpus = max(it.cpus for it in models)
    if cpus > machine.shape.cpus:
        return f"{who} {cpus:g} CPUs, {machine.type} has {machine.shape.cpus:g}"
    accelerators = max(it.accelerators for it in models)
    if accelerators > machine.shape.accelerators:
        return f"{who} {accelerators} accelerators, {machine.type} has {machine.shape.accelerators}"
    devices = machine.shape.accelerators if is_shared else accelerators
    device = sum(it.accelerator_memory_bytes for it in models)
    if device > devices * machine.device_memory_bytes:
        return (
            f"{who} {device / GIB:.1f} GiB of accelerator memory, {devices} of {machine.type} have "
            f"{devices * machine.device_memory_bytes / GIB:.1f}"
        )
    return None


def _check_machines(
    option: HostingOption, models: Sequence[FitModel], mix: FitMix
) -> Iterator[str]:
    parts = [[it] for it in models] if option in PER_MODEL else [list(models)]
    for part in parts:
        lacks = [fits(option, part, it) for it in mix.machines]
        if all(lacks):
            yield f"no machine is large enough: {'; '.join(it for it in lacks[:2] if it)}"
            return
    instances = sum(max(1, it.min_copies) for it in models)
    most = sum(it.most for it in mix.machines)
    if option is HostingOption.DEDICATED and instances > most:
        yield f"it needs {instances:,} instances, and the machines allow {most:,} (most)"


def _list_first(
    models: Sequence[FitModel], list_reasons: Callable[[FitModel], Iterator[str]]
) -> list[str]:
    """The reasons of the first model that has any, with the number of further such models."""
    refused = [(it, found) for it in models if (found := list(list_reasons(it)))]
    if not refused:
        return []
    model, reasons = refused[0]
    more = f" (and {len(refused) - 1:,} more)" if len(refused) > 1 else ""
    return [f"{model.name} {it}{more}" for it in reasons]


def _list_limits(option: HostingOption, model: FitModel, mix: FitMix) -> Iterator[str]:
    limits = OPTION_LIMITS[option]
    level = get_isolation(option, has_machine_per_instance=mix.has_machine_per_instance)
    if model.isolation_min > level:
        yield (
            f"needs isolation {model.isolation_min.value} ({ISOLATION_TEXT[model.isolation_min]}), "
            f"here it is {level.value} ({ISOLATION_TEXT[level]})"
        )
    if model.latency_class is LatencyClass.INTERACTIVE and not limits.in_call:
        yield "is interactive: it needs the answer in the call"
    if model.needs_streaming and limits.stream_s is None:
        yield "needs a stream: answers are objects here"
    if model.needs_capture and not limits.captures:
        yield "needs data capture, which is refused here"
    limit_s = limits.get_time_limit_s(model)
    if model.max_s > limit_s:
        yield f"may take {model.max_s:g} s for a call, the limit is {limit_s:g} s"
    for what, size, limit in (
        ("requests", model.payload_bytes, limits.payload_bytes),
        ("answers", model.answer_bytes, limits.answer_bytes),
    ):
        if limit is not None and size > limit:
            yield f"has {what} of {size / MIB:.4g} MiB, the limit is {limit / MIB:.4g} MiB"


Reasons = Iterator[str]


def _check_none(models: Sequence[FitModel], mix: FitMix) -> Reasons:
    yield from ()


def _check_adapters(models: Sequence[FitModel], mix: FitMix) -> Reasons:
    bases = {it.adapter_of for it in models if it.adapter_of is not None}
    others = [it.name for it in models if it.adapter_of is None and it.name not in bases]
    if not bases:
        yield "no model is an adapter (adapter_of)"
    elif others:
        yield f"{others[0]} is no adapter, nor the base of one"


def _check_multi_model(models: Sequence[FitModel], mix: FitMix) -> Reasons:
    frameworks = sorted({it.framework for it in models})
    if len(models) < 2:
        yield "there is one model only"
    if len(frameworks) > 1:
        yield f"one container serves one framework, and there are {', '.join(frameworks[:5])}"
    refused = [it for it in frameworks if it in ONE_MODEL_FRAMEWORKS]
    if refused:
        yield f"the {refused[0]} server takes one model: Mode MultiModel is refused"


def _check_multi_container(models: Sequence[FitModel], mix: FitMix) -> Reasons:
    if not 2 <= len(models) <= MAX_CONTAINERS:
        yield f"an endpoint has 2 to {MAX_CONTAINERS} containers, not {len(models):,}"


def _check_serverless(models: Sequence[FitModel], mix: FitMix) -> Reasons:
    large = [it for it in models if get_serverless_memory_mb(it) > MAX_MEMORY_MB]
    if large:
        mb = large[0].memory_bytes / MIB
        yield f"{large[0].name} needs {mb:,.0f} MB, an environment has {MAX_MEMORY_MB:,} MB at most"
    accelerated = [it for it in models if it.accelerators]
    if accelerated:
        yield f"{accelerated[0].name} needs an accelerator, an environment has none"
    if len(models) > MAX_ENDPOINTS:
        yield f"an account has {MAX_ENDPOINTS} serverless endpoints, not {len(models):,}"
    total = len(models) * mix.serverless_concurrency
    if total > MAX_TOTAL_CONCURRENCY:
        yield f"MaxConcurrency adds up to {total:,}, an account has {MAX_TOTAL_CONCURRENCY:,}"


_OF_GROUP: Mapping[HostingOption, Callable[[Sequence[FitModel], FitMix], Reasons]] = {
    HostingOption.ADAPTERS: _check_adapters,
    HostingOption.MULTI_MODEL: _check_multi_model,
    HostingOption.MULTI_CONTAINER: _check_multi_container,
    HostingOption.SERVERLESS: _check_serverless,
}

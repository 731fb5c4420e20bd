"""The hosting options, with the limits that this platform enforces on each. PURE."""

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.advisor.values import FitModel, Hardware, IsolationLevel
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.domain.serverless import MAX_INVOCATION_S, MAX_PAYLOAD_BYTES
from hostelry.domain.transform_rules import MAX_PAYLOAD_MB
from hostelry.gateway.handlers.runtime import InvocationLimits
from hostelry.jobs.dispatch.request_input import MAX_INPUT_BYTES

MIB = 2**20
MAX_ASYNC_S = 3600.0  # InvocationTimeoutSeconds, and InvocationsTimeoutInSeconds of transform jobs


class HostingOption(Enum):
    """A way to host the models of a group. The order is of reports, and of equal results."""

    DEDICATED = "dedicated"
    COMPONENTS = "components"
    ADAPTERS = "adapters"
    MULTI_MODEL = "multi-model"
    MULTI_CONTAINER = "multi-container"
    SERVERLESS = "serverless"
    ASYNCHRONOUS = "asynchronous"
    BATCH = "batch"


class OptionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an option on this platform.

    `whole_s` and `stream_s` limit a call. Without `stream_s` answers cannot be streamed, without
    `answer_bytes` they are not limited. With `in_call` the caller gets the answer in the call.
    """

    payload_bytes: int
    answer_bytes: int | None
    whole_s: float
    stream_s: float | None
    captures: bool
    in_call: bool
    isolation: IsolationLevel

    def get_time_limit_s(self, model: FitModel) -> float:
        """The longest time of a call for a model."""
        is_stream = model.needs_streaming and self.stream_s is not None
        return self.stream_s or self.whole_s if is_stream else self.whole_s


_BODY = HttpLimits().max_body_bytes
_INVOCATION = InvocationLimits()
_REAL_TIME = OptionLimits(
    payload_bytes=_BODY,
    answer_bytes=_INVOCATION.max_answer_bytes,
    whole_s=_INVOCATION.invoke_timeout_s,
    stream_s=_INVOCATION.stream_timeout_s,
    captures=True,
    in_call=True,
    isolation=IsolationLevel.OWN_MACHINE,
)
_LATER = replace(_REAL_TIME, answer_bytes=None, whole_s=MAX_ASYNC_S, stream_s=None, in_call=False)
OPTION_LIMITS: Mapping[HostingOption, OptionLimits] = {
    HostingOption.DEDICATED: _REAL_TIME,
    HostingOption.COMPONENTS: replace(
        _REAL_TIME, captures=False, isolation=IsolationLevel.OWN_LIMITS
    ),
    HostingOption.ADAPTERS: replace(
        _REAL_TIME, captures=False, isolation=IsolationLevel.SAME_PROCESS
    ),
    HostingOption.MULTI_MODEL: replace(
        _REAL_TIME, captures=False, isolation=IsolationLevel.OWN_PROCESS
    ),
    HostingOption.MULTI_CONTAINER: replace(_REAL_TIME, isolation=IsolationLevel.OWN_CONTAINER),
    HostingOption.SERVERLESS: OptionLimits(
        payload_bytes=MAX_PAYLOAD_BYTES,
        answer_bytes=MAX_PAYLOAD_BYTES,
        whole_s=MAX_INVOCATION_S,
        stream_s=MAX_INVOCATION_S,
        captures=False,
        in_call=True,
        isolation=IsolationLevel.OWN_LIMITS,
    ),
    HostingOption.ASYNCHRONOUS: replace(_LATER, payload_bytes=MAX_INPUT_BYTES),
    HostingOption.BATCH: replace(_LATER, payload_bytes=MAX_PAYLOAD_MB * MIB, captures=False),
}


def get_isolation(option: HostingOption, *, has_machine_per_instance: bool) -> IsolationLevel:
    """The level of an option. Instances that share a machine share its kernel and its memory."""
    level = OPTION_LIMITS[option].isolation
    return level if has_machine_per_instance else min(level, IsolationLevel.OWN_LIMITS)


def merge_adapters(models: Sequence[FitModel]) -> tuple[FitModel, ...]:
    """The models with each adapter as a whole model: the base with the adapter merged into it.

    A base without traffic is then not needed.
    """
    by_name = {it.name: it for it in models}
    bases = {it.adapter_of for it in models if it.adapter_of is not None}
    found: list[FitModel] = []
    for model in models:
        if model.adapter_of is None:
            is_idle = model.traffic.trace is None and not model.traffic.per_hour
            if not (model.name in bases and is_idle):
                found.append(model)
            continue
        base = by_name[model.adapter_of]
        found.append(
            replace(
                model,
                adapter_of=None,
                memory_bytes=base.memory_bytes + model.memory_bytes,
                loaded_bytes=base.held_bytes + model.held_bytes,
                disk_bytes=base.disk_bytes + model.disk_bytes,
                cpus=base.cpus,
                accelerators=base.accelerators,
                hardware=Hardware.ACCELERATOR if base.accelerators else Hardware.CPU,
                accelerator_memory_bytes=base.accelerator_memory_bytes
                + model.accelerator_memory_bytes,
            )
        )
    return tuple(found)


def get_option_models(option: HostingOption, models: Sequence[FitModel]) -> tuple[FitModel, ...]:
    """The models that an option hosts. Only ADAPTERS has adapters as such."""
    return tuple(models) if option is HostingOption.ADAPTERS else merge_adapters(models)

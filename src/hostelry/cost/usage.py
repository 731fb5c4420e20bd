"""Usage of one hour as values, and the names of the metrics that record it. Pure.

The metrics are in Hostelry's namespace, as sums per 5 minutes:

    metric                 sum of                           dimensions
    --------------------   ------------------------------   ----------------------------------------
    UsageInstanceTime      seconds of instances             endpoint, variant, instance type
    UsageReservedTime      the same, times the reserved     the same, and the component unless the
                           share of the instance            variant has a model
    UsageRequests,         requests that ended, seconds     endpoint, variant, component, and for an
    UsageServiceTime,      of their service, bytes, and     adapter its base. Apart from these sums,
    UsageBytesIn, ...      tokens                           parts by target model and by tenant
    UsageStorageTime       bytes times seconds              none
    UsageEnergy            measured joules                  source
    UsageEnergyTime        seconds with measured energy     none
    UsageRecordedTime      seconds with records             none
    UsageSteps             calls that deploy or change      operation, endpoint unless it is a
                           something, operators' acts       model or a configuration
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

ENDPOINT, VARIANT, TYPE = "EndpointName", "VariantName", "InstanceType"
COMPONENT, BASE = "InferenceComponentName", "BaseInferenceComponentName"
MODEL, TENANT = "TargetModel", "Tenant"
# These begin the name of a job, in place of an endpoint's.
TRANSFORM_PREFIX = "transform job "
RECOMMENDATION_PREFIX = "recommendations job "
AI_RECOMMENDATION_PREFIX = "AI recommendation job "
REQUESTS = "UsageRequests"
INSTANCE_TIME, RESERVED_TIME = "UsageInstanceTime", "UsageReservedTime"
STORAGE_TIME, RECORDED_TIME = "UsageStorageTime", "UsageRecordedTime"
STEPS, OPERATION = "UsageSteps", "Operation"
ENERGY, ENERGY_TIME, SOURCE = "UsageEnergy", "UsageEnergyTime", "Source"
# The sums of calls, by the metric that has them.
CALLS: Mapping[str, str] = {
    REQUESTS: "requests",
    "UsageServiceTime": "service_s",
    "UsageBytesIn": "bytes_in",
    "UsageBytesOut": "bytes_out",
    "UsageTokenRequests": "token_requests",
    "UsageTokensIn": "tokens_in",
    "UsageTokensOut": "tokens_out",
}
MB_MS_PER_GB_S = 1024 * 1000
MB_S_PER_GB_S = 1024
# The sums of serverless endpoints, by metric: the field, and its divisor.
SERVERLESS: Mapping[str, tuple[str, float]] = {
    "ServerlessMemoryTime": ("gb_s", MB_MS_PER_GB_S),
    "ServerlessProvisionedTime": ("provisioned_gb_s", MB_S_PER_GB_S),
}
# The sums over the whole machine, by metric.
MACHINE: Mapping[str, str] = {
    STORAGE_TIME: "stored_byte_s",
    RECORDED_TIME: "recorded_s",
    ENERGY: "energy_j",
    ENERGY_TIME: "energy_s",
}
METRICS = frozenset({INSTANCE_TIME, RESERVED_TIME, STEPS, *MACHINE, *CALLS, *SERVERLESS})


class VariantFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of one type of a variant."""

    endpoint: str
    variant: str
    instance_type: str


class UsageTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The name that requests were for: a variant with a model, a component, or an adapter.

    `base` is the component whose copies answer an adapter's requests.
    """

    endpoint: str
    variant: str
    component: str | None = None
    base: str | None = None

    @property
    def owner(self) -> str | None:
        """The component that has the copies. None for the model of a variant."""
        return self.base or self.component


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over requests. `service_s` is the time from the choice of a copy to the last byte.

    `token_requests` counts the requests whose answers reported numbers of tokens.
    """

    requests: float = 0.0
    service_s: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    token_requests: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens in both directions."""
        return self.tokens_in + self.tokens_out


NO_CALLS = Calls()


class ServerlessUse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory times time of a serverless endpoint: of its requests, and provisioned."""

    gb_s: float = 0.0
    provisioned_gb_s: float = 0.0


class HourUsage(msgspec.Struct, kw_only=True):
    """Usage of the hour that begins at `at`, in seconds since the epoch.

    `reserved_s` has seconds times the reserved share, by fleet and component. None stands for the
    model of a variant, which has whole instances. `by_model` and `by_tenant` have the parts of
    `calls` whose requests named a target model or a tenant. `steps` has the number of steps by
    endpoint (empty for models and configurations) and operation.
    """

    at: float
    instance_s: dict[VariantFleet, float] = msgspec.field(default_factory=dict)
    reserved_s: dict[tuple[VariantFleet, str | None], float] = msgspec.field(default_factory=dict)
    calls: dict[UsageTarget, Calls] = msgspec.field(default_factory=dict)
    by_model: dict[UsageTarget, dict[str, Calls]] = msgspec.field(default_factory=dict)
    by_tenant: dict[UsageTarget, dict[str, Calls]] = msgspec.field(default_factory=dict)
    serverless: dict[UsageTarget, ServerlessUse] = msgspec.field(default_factory=dict)
    steps: dict[tuple[str, str], float] = msgspec.field(default_factory=dict)
    stored_byte_s: float = 0.0
    recorded_s: float = 0.0
    energy_j: float = 0.0
    energy_s: float = 0.0


class UsageSum(msgspec.Struct, frozen=True):
    """The sum of one metric in one hour."""

    metric: str
    dimensions: Mapping[str, str]
    at: float
    value: float


def gather_hours(sums: Iterable[UsageSum]) -> list[HourUsage]:
    """Arrange sums by hour, oldest first. Sums of other metrics are left out."""
    hours: dict[float, HourUsage] = {}
    for one in sums:
        if one.metric in METRICS:
            _add(hours.setdefault(one.at, HourUsage(at=one.at)), one)
    return [hours[at] for at in sorted(hours)]


def _add(hour: HourUsage, one: UsageSum) -> None:
    if one.metric in MACHINE:
        name = MACHINE[one.metric]
        setattr(hour, name, getattr(hour, name) + one.value)
    elif one.metric in (INSTANCE_TIME, RESERVED_TIME):
        _add_instances(hour, one)
    elif one.metric == STEPS:
        key = one.dimensions.get(ENDPOINT, ""), one.dimensions.get(OPERATION, "")
        hour.steps[key] = hour.steps.get(key, 0.0) + one.value
    elif one.metric in SERVERLESS:
        name, divisor = SERVERLESS[one.metric]
        target = _get_target(one)
        known = hour.serverless.get(target, ServerlessUse())
        value = getattr(known, name) + one.value / divisor
        hour.serverless[target] = replace(known, **{name: value})
    else:
        _add_calls(hour, one)


def _add_instances(hour: HourUsage, one: UsageSum) -> None:
    fleet = VariantFleet(
        endpoint=one.dimensions.get(ENDPOINT, ""),
        variant=one.dimensions.get(VARIANT, ""),
        instance_type=one.dimensions.get(TYPE, ""),
    )
    if one.metric == INSTANCE_TIME:
        hour.instance_s[fleet] = hour.instance_s.get(fleet, 0.0) + one.value
    else:
        key = fleet, one.dimensions.get(COMPONENT)
        hour.reserved_s[key] = hour.reserved_s.get(key, 0.0) + one.value


def _add_calls(hour: HourUsage, one: UsageSum) -> None:
    target = _get_target(one)
    model, tenant = one.dimensions.get(MODEL), one.dimensions.get(TENANT)
    name = CALLS[one.metric]
    if model is not None:
        parts = hour.by_model.setdefault(target, {})
        parts[model] = _plus(parts.get(model), name, one.value)
    elif tenant is not None:
        parts = hour.by_tenant.setdefault(target, {})
        parts[tenant] = _plus(parts.get(tenant), name, one.value)
    else:
        hour.calls[target] = _plus(hour.calls.get(target), name, one.value)


def _plus(known: Calls | None, name: str, value: float) -> Calls:
    found = known or NO_CALLS
    return replace(found, **{name: getattr(found, name) + value})


def _get_target(one: UsageSum) -> UsageTarget:
    return UsageTarget(
        endpoint=one.dimensions.get(ENDPOINT, ""),
        variant=one.dimensions.get(VARIANT, ""),
        component=one.dimensions.get(COMPONENT),
        base=one.dimensions.get(BASE),
    )

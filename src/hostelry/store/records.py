"""Typed records over a store, for the control plane."""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import msgspec

from hostelry.base.json import get_decoder
from hostelry.domain.ai_benchmark_job import AiBenchmarkJob, AiWorkloadConfig
from hostelry.domain.alarm import AlarmHistory, CompositeAlarm, MetricAlarm
from hostelry.domain.component import InferenceComponent, family_name
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import Endpoint, EndpointPolicy
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.event_rule import EventRule
from hostelry.domain.event_schedule import EventSchedule, ScheduleGroup
from hostelry.domain.inference_experiment import InferenceExperiment
from hostelry.domain.messaging import Queue, Subscription, Topic
from hostelry.domain.metric import Dashboard
from hostelry.domain.model import Model, Repository
from hostelry.domain.principal import Account, BucketOwner, OidcProvider, User
from hostelry.domain.quota import Quota
from hostelry.domain.recommendation_job import RecommendationJob
from hostelry.domain.role import InstanceProfile, ManagedPolicy, Role
from hostelry.domain.scaling import ScalableTarget, ScalingActivity, ScalingPolicy, ScheduledAction
from hostelry.domain.scope import Scope, TagSet
from hostelry.domain.secret import KmsAlias, KmsKey, StoredSecret
from hostelry.domain.transform_job import TransformJob
from hostelry.store.first_created import FirstCreated
from hostelry.store.mirror import GroupedKind, Mirror, RecordGroup
from hostelry.store.protocol import Key, Record, RecordWrite, Store, StoreRefused

T = TypeVar("T")


class Versioned(msgspec.Struct, Generic[T], frozen=True):
    """A value as it was read or written, and the version to expect when it is replaced."""

    value: T
    version: int


class Records(Generic[T]):
    """Records of one kind, as values of one type. `group_of` returns the group of a value.

    If `part_of` is given, it divides groups into parts.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        type: type[T],
        mirror: Mirror | None = None,
        group_of: Callable[[T], Hashable] = lambda _: None,
        part_of: Callable[[T], Hashable] | None = None,
    ) -> None:
        self.kind = kind
        self._store = store
        self.mirror = mirror or Mirror(store)
        self._decoder = get_decoder(type)
        self.grouped = GroupedKind(kind, self._value, group_of, part_of)

    def get(self, scope: Scope, name: str) -> Versioned[T] | None:
        """The value, or None."""
        record = self._store.get(self._key(scope, name))
        return None if record is None else Versioned(self._value(record), record.version)

    def put(self, scope: Scope, name: str, value: T, *, expect: int | None) -> Versioned[T]:
        """Write if the version is `expect` (None: it must not exist), else raise Conflict."""
        body = msgspec.json.encode(value, enc_hook=as_dictionary, order="deterministic")
        record = self._store.put(self._key(scope, name), body, expect=expect)
        return Versioned(value, record.version)

    def write(self, scope: Scope, name: str, value: T | None, *, expect: int | None) -> RecordWrite:
        """Build a write for `Store.write_all`. A value of None is a removal."""
        body = None
        if value is not None:
            body = msgspec.json.encode(value, enc_hook=as_dictionary, order="deterministic")
        return RecordWrite(key=self._key(scope, name), body=body, expect=expect)

    def delete(self, scope: Scope, name: str, *, expect: int) -> None:
        """Remove if the current version is `expect`, else raise Conflict."""
        self._store.delete(self._key(scope, name), expect=expect)

    def list(self, scope: Scope | None = None) -> list[Versioned[T]]:
        """Every value (in `scope`, or in all), ordered by name."""
        entries = self.mirror.entries(self.kind, scope)
        return [Versioned(it.value(self._value), it.record.version) for it in entries]

    def has_name(self, scope: Scope, name: str) -> bool:
        """Whether a record has this name in upper or lower case. Both would have the same ARN."""
        return self.mirror.has_name(self.kind, scope, name)

    def group(self, name: Hashable) -> RecordGroup:
        """The records of one group. The size of other groups does not affect the cost."""
        return self.mirror.group([self.grouped], name)[0]

    def _key(self, scope: Scope, name: str) -> Key:
        return Key(kind=self.kind, scope=scope, name=name)

    def _value(self, record: Record) -> T:
        try:
            return self._decoder.decode(record.body)
        except msgspec.DecodeError as error:
            raise StoreRefused(
                f"the stored {self.kind} {record.key.name!r} cannot be read: {error}"
            ) from error


def as_dictionary(value: Any) -> dict[Any, Any]:
    """Convert a mapping that is not a dictionary to one. Raises TypeError for other values."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a record cannot hold an object of type {type(value).__name__}")
    return dict(value)


def endpoint_address(scope: Scope, endpoint_name: str) -> tuple[Scope, str]:
    """The name of the group of an endpoint's records."""
    return scope, endpoint_name


def on_endpoint(records: Records[T], scope: Scope, endpoint_name: str) -> Mapping[str, T]:
    """The components, instances or copies of an endpoint, by name."""
    return records.group(endpoint_address(scope, endpoint_name)).values


def parts_in_scope(
    records: Records[T], scope: Scope, endpoint_name: str | None = None
) -> Iterator[tuple[Hashable, Mapping[Hashable, Mapping[str, T]]]]:
    """The components or copies of one endpoint of a scope, or of all, in their parts."""
    for name, group in all_groups({records.kind: records})[records.kind].items():
        if name[0] == scope and endpoint_name in (None, name[1]):
            yield name, group.parts


def groups_named(
    kinds: Mapping[str, Records[Any]], name: tuple[Scope, str]
) -> dict[str, RecordGroup]:
    """The groups of that name of several kinds, at one revision. The kinds share a mirror."""
    grouped = [it.grouped for it in kinds.values()]
    mirror = next(iter(kinds.values())).mirror
    return dict(zip(kinds, mirror.group(grouped, name), strict=True))


def all_groups(
    kinds: Mapping[str, Records[Any]],
) -> dict[str, Mapping[tuple[Scope, str], RecordGroup]]:
    """All groups of several kinds. The kinds share a mirror and are grouped by endpoint."""
    grouped = [it.grouped for it in kinds.values()]
    mirror = next(iter(kinds.values())).mirror
    return dict(zip(kinds, cast("Any", mirror.groups(grouped)), strict=True))


def _get_address(endpoint: Endpoint) -> tuple[Scope, str]:
    return endpoint_address(endpoint.scope, endpoint.name)


def _get_component(copy: Copy) -> str | None:
    return copy.component_name


def _get_endpoint(value: InferenceComponent | Instance | Copy) -> tuple[Scope, str]:
    return endpoint_address(value.scope, value.endpoint_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All records of the control plane, by kind.

    `endpoints`, `components`, `instances` and `copies` are in groups by `endpoint_address`.
    Components are in parts by `family_name`, copies in parts by component.

    `instances`, `copies` and `scaling_activities` are named by their ids, `tags` by the resource's
    ARN, records of a scalable target by `target_name` and `policy_key` in `domain.scaling`, and
    `event_schedules` by `schedule_key`. `roles`, `users` and other records of IAM are account-wide
    and named by their names in lower case, `oidc_providers` by their URLs. `quotas` are
    account-wide. `accounts` are account-wide, too, and named by their ids.

    An API operation holds `writing` from its first check to its last write. `first_components`
    finds the first components of a list.
    """

    store: Store
    models: Records[Model]
    endpoint_configs: Records[EndpointConfig]
    endpoints: Records[Endpoint]
    endpoint_policies: Records[EndpointPolicy]
    components: Records[InferenceComponent]
    instances: Records[Instance]
    copies: Records[Copy]
    tags: Records[TagSet]
    metric_alarms: Records[MetricAlarm]
    composite_alarms: Records[CompositeAlarm]
    alarm_histories: Records[AlarmHistory]
    dashboards: Records[Dashboard]
    scalable_targets: Records[ScalableTarget]
    scaling_policies: Records[ScalingPolicy]
    scheduled_actions: Records[ScheduledAction]
    scaling_activities: Records[ScalingActivity]
    repositories: Records[Repository]
    topics: Records[Topic]
    subscriptions: Records[Subscription]
    queues: Records[Queue]
    kms_keys: Records[KmsKey]
    kms_aliases: Records[KmsAlias]
    accounts: Records[Account]
    buckets: Records[BucketOwner]
    users: Records[User]
    oidc_providers: Records[OidcProvider]
    quotas: Records[Quota]
    roles: Records[Role]
    managed_policies: Records[ManagedPolicy]
    instance_profiles: Records[InstanceProfile]
    secrets: Records[StoredSecret]
    event_schedules: Records[EventSchedule]
    schedule_groups: Records[ScheduleGroup]
    event_rules: Records[EventRule]
    transform_jobs: Records[TransformJob]
    inference_experiments: Records[InferenceExperiment]
    recommendation_jobs: Records[RecommendationJob]
    ai_recommendation_jobs: Records[RecommendationJob]
    ai_workload_configs: Records[AiWorkloadConfig]
    ai_benchmark_jobs: Records[AiBenchmarkJob]
    writing: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)
    first_components: FirstCreated = field(default_factory=FirstCreated, compare=False, repr=False)


def open_state(store: Store) -> State:
    """Open typed records over `store`."""
    mirror = Mirror(store)
    return State(
        store=store,
        models=Records(store, "model", Model, mirror),
        endpoint_configs=Records(store, "endpoint_config", EndpointConfig, mirror),
        endpoints=Records(store, "endpoint", Endpoint, mirror, _get_address),
        endpoint_policies=Records(store, "endpoint_policy", EndpointPolicy, mirror),
        components=Records(
            store, "component", InferenceComponent, mirror, _get_endpoint, family_name
        ),
        instances=Records(store, "instance", Instance, mirror, _get_endpoint),
        copies=Records(store, "copy", Copy, mirror, _get_endpoint, _get_component),
        tags=Records(store, "tags", TagSet, mirror),
        metric_alarms=Records(store, "metric_alarm", MetricAlarm, mirror),
        composite_alarms=Records(store, "composite_alarm", CompositeAlarm, mirror),
        alarm_histories=Records(store, "alarm_history", AlarmHistory, mirror),
        dashboards=Records(store, "dashboard", Dashboard, mirror),
        scalable_targets=Records(store, "scalable_target", ScalableTarget, mirror),
        scaling_policies=Records(store, "scaling_policy", ScalingPolicy, mirror),
        scheduled_actions=Records(store, "scheduled_action", ScheduledAction, mirror),
        scaling_activities=Records(store, "scaling_activity", ScalingActivity, mirror),
        repositories=Records(store, "repository", Repository, mirror),
        topics=Records(store, "topic", Topic, mirror),
        subscriptions=Records(store, "subscription", Subscription, mirror),
        queues=Records(store, "queue", Queue, mirror),
        kms_keys=Records(store, "kms_key", KmsKey, mirror),
        kms_aliases=Records(store, "kms_alias", KmsAlias, mirror),
        accounts=Records(store, "account", Account, mirror),
        buckets=Records(store, "bucket", BucketOwner, mirror),
        users=Records(store, "user", User, mirror),
        oidc_providers=Records(store, "oidc_provider", OidcProvider, mirror),
        quotas=Records(store, "quota", Quota, mirror),
        roles=Records(store, "role", Role, mirror),
        managed_policies=Records(store, "managed_policy", ManagedPolicy, mirror),
        instance_profiles=Records(store, "instance_profile", InstanceProfile, mirror),
        secrets=Records(store, "secret", StoredSecret, mirror),
        event_schedules=Records(store, "event_schedule", EventSchedule, mirror),
        schedule_groups=Records(store, "schedule_group", ScheduleGroup, mirror),
        event_rules=Records(store, "event_rule", EventRule, mirror),
        transform_jobs=Records(store, "transform_job", TransformJob, mirror),
        inference_experiments=Records(store, "inference_experiment", InferenceExperiment, mirror),
        recommendation_jobs=Records(store, "recommendation_job", RecommendationJob, mirror),
        ai_recommendation_jobs=Records(store, "ai_recommendation_job", RecommendationJob, mirror),
        ai_workload_configs=Records(store, "ai_workload_config", AiWorkloadConfig, mirror),
        ai_benchmark_jobs=Records(store, "ai_benchmark_job", AiBenchmarkJob, mirror),
    )

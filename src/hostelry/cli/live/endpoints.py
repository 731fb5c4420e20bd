"""Endpoints as `observed_state` shows them: the hosting option, models and scaling of each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.advisor.options import HostingOption
from hostelry.cli.declared.forms import get_base, specifications
from hostelry.cli.declared.observation import ObservedState
from hostelry.cli.declared.resource import Observed, Params, ResourceKey, ResourceKind, target_key
from hostelry.fleet.rules.frameworks import find_framework_image
from hostelry.fleet.rules.images import (
    LMI_REPOSITORY,
    parse_registry,
    parse_repository,
    parse_tag,
)

COPY_DIMENSION = "sagemaker:inference-component:DesiredCopyCount"
INSTANCE_DIMENSION = "sagemaker:variant:DesiredInstanceCount"


class LiveModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of an endpoint: its container, and its metrics' dimensions."""

    name: str
    dimensions: Mapping[str, str]
    container: Params
    needs: Params = msgspec.field(default_factory=dict)
    adapter_of: str | None = None


class LiveEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint with one variant."""

    name: str
    variant: Params
    option: HostingOption
    models: tuple[LiveModel, ...]
    scalings: tuple[Sequence[Mapping[str, Any]], ...]
    counts: tuple[int, ...]

    @property
    def dimensions(self) -> dict[str, str]:
        """The dimensions of the variant's metrics."""
        return {"EndpointName": self.name, "VariantName": self.variant["VariantName"]}


def list_endpoints(
    observed: ObservedState, chosen: Sequence[str]
) -> tuple[list[LiveEndpoint], dict[str, str]]:
    """The endpoints that can be compared, and the reasons why others cannot be."""
    found: list[LiveEndpoint] = []
    left_out: dict[str, str] = {}
    for one in observed.of(ResourceKind.ENDPOINT):
        if chosen and one.key.name not in chosen:
            continue
        read = _Reading(observed, one)
        problem = read.find_problem()
        if problem is None:
            found.append(read.build())
        else:
            left_out[one.key.name] = problem
    return found, left_out


class _Reading:
    """One endpoint."""

    def __init__(self, observed: ObservedState, endpoint: Observed) -> None:
        self._observed = observed
        self._endpoint = endpoint
        self._config: Params = endpoint.params["Config"]
        self._variants: Sequence[Params] = self._config.get("ProductionVariants", ())
        mine = [
            one
            for one in observed.of(ResourceKind.COMPONENT)
            if one.params["EndpointName"] == endpoint.key.name and one.status != "Deleting"
        ]
        self._components = sorted(mine, key=lambda it: get_base(it.params) is not None)

    def find_problem(self) -> str | None:
        """Why the endpoint cannot be compared, or None."""
        if self._endpoint.status not in ("InService", "Updating"):
            return f"it is {self._endpoint.status}"
        if len(self._variants) != 1:
            return f"it has {len(self._variants)} variants, and one is compared"
        (variant,) = self._variants
        if "AsyncInferenceConfig" in self._config:
            return "it is asynchronous, and the times of its queue are in no metric"
        if "InstancePools" in variant:
            return "it has instance pools, and one type is compared"
        if "ModelName" not in variant:
            return None if self._components else "it has no component"
        containers = self._containers(variant)
        if not containers:
            return f"its model {variant['ModelName']} is deleted"
        if len(containers) > 1:
            return f"it has {len(containers)} containers, and one is compared"
        return None

    def build(self) -> LiveEndpoint:
        """The endpoint, which has no problem."""
        (variant,) = self._variants
        name = self._endpoint.key.name
        if "ModelName" not in variant:
            return self._build_components(variant)
        (container,) = self._containers(variant)
        dimensions = {"EndpointName": name, "VariantName": variant["VariantName"]}
        is_multi = container.get("Mode") == "MultiModel"
        option = HostingOption.MULTI_MODEL if is_multi else HostingOption.DEDICATED
        if "ServerlessConfig" in variant:
            option = HostingOption.SERVERLESS
        live = self._endpoint.live.get(variant["VariantName"], {})
        resource = f"endpoint/{name}/variant/{variant['VariantName']}"
        return LiveEndpoint(
            name=name,
            variant=variant,
            option=option,
            models=(LiveModel(name=name, dimensions=dimensions, container=container),),
            scalings=(self._list_scaling(resource, INSTANCE_DIMENSION),),
            counts=(int(live.get("DesiredInstanceCount") or 1),),
        )

    def _containers(self, variant: Params) -> Sequence[Params]:
        key = ResourceKey(ResourceKind.MODEL, variant["ModelName"])
        found = self._observed.resources.get(key)
        containers: Sequence[Params] = () if found is None else found.params["Containers"]
        return containers

    def _build_components(self, variant: Params) -> LiveEndpoint:
        models, scalings, counts = [], [], []
        for one in self._components:
            specification = specifications(one.params)[0]
            base = get_base(one.params)
            models.append(
                LiveModel(
                    name=one.key.name,
                    dimensions={"InferenceComponentName": one.key.name},
                    container=self._find_container(specification),
                    needs=specification.get("ComputeResourceRequirements", {}),
                    adapter_of=base,
                )
            )
            resource = f"inference-component/{one.key.name}"
            scalings.append(self._list_scaling(resource, COPY_DIMENSION))
            counts.append(int(one.params.get("CopyCount", 1)))
        has_adapters = any(it.adapter_of is not None for it in models)
        return LiveEndpoint(
            name=self._endpoint.key.name,
            variant=variant,
            option=HostingOption.ADAPTERS if has_adapters else HostingOption.COMPONENTS,
            models=tuple(models),
            scalings=tuple(scalings),
            counts=tuple(counts),
        )

    def _find_container(self, specification: Params) -> Params:
        own = specification.get("Container", {})
        key = ResourceKey(ResourceKind.MODEL, specification.get("ModelName", ""))
        model = self._observed.resources.get(key)
        if model is None:
            return {**own, "ModelDataUrl": own.get("ArtifactUrl", "")}
        return {**model.params["Containers"][0], **own}

    def _list_scaling(self, resource: str, dimension: str) -> list[dict[str, Any]]:
        """The requests that scale a resource, as a policy file has them."""
        found: list[dict[str, Any]] = []
        for target in self._observed.of(ResourceKind.TARGET):
            if target.key != target_key(resource, dimension):
                continue
            bounds = {it: target.params.get(it, 0) for it in ("MinCapacity", "MaxCapacity")}
            names = []
            for kind, field_name in (
                (ResourceKind.POLICY, "PolicyName"),
                (ResourceKind.ACTION, "ScheduledActionName"),
            ):
                for one in self._observed.of(kind):
                    if one.key.within == target.key.name:
                        more = bounds if kind is ResourceKind.POLICY else {}
                        found.append({field_name: one.key.name, **more, **one.params})
                        names.append(one.key.name)
            found += self._list_alarms(resource, names)
            if not any("PolicyName" in it for it in found):
                found.append(bounds)
        return found

    def _list_alarms(self, resource: str, policies: Sequence[str]) -> Iterator[dict[str, Any]]:
        references = {f"policy/{resource}/{it}": it for it in policies}
        for alarm in self._observed.of(ResourceKind.ALARM):
            mine = [it for it in alarm.params.get("AlarmActions", ()) if it in references]
            if mine and alarm.key.name not in self._observed.made_by_policies:
                actions = [references[it] for it in mine]
                yield {**alarm.params, "AlarmName": alarm.key.name, "AlarmActions": actions}


def find_framework(image: str) -> str:
    """The framework of an image, as a mix names it."""
    repository = parse_repository(image)
    if LMI_REPOSITORY.search(repository):
        return "lmi"
    found = find_framework_image(repository, parse_tag(image), parse_registry(image))
    return "custom" if found is None else found.framework

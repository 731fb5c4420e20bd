"""Copies of the containers of a variant's model: one of each container on every instance."""

from collections.abc import Iterable, Mapping, Sequence

from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import EndpointVariant
from hostelry.domain.model import Container


def containers_on(variant: EndpointVariant, instance: Instance) -> Sequence[Container]:
    """The containers that run on an instance of the variant; none where it takes components."""
    model = variant.model_on(instance.instance_type)
    return () if model is None else model.containers


def complete_sets(
    variant: EndpointVariant, instances: Iterable[Instance], ready: Iterable[Copy]
) -> Mapping[str, tuple[Copy, ...]]:
    """By instance id, its copies of `ready` in the order of the model's containers.

    Instances that lack a ready copy of any container are left out.
    """
    by_place = {(it.instance_id, it.spec.container.hostname): it for it in ready}
    found = {}
    for instance in instances:
        names = [it.hostname for it in containers_on(variant, instance)]
        copies = [by_place[instance.id, it] for it in names if (instance.id, it) in by_place]
        if names and len(copies) == len(names):
            found[instance.id] = tuple(copies)
    return found


def num_containers(variant: EndpointVariant) -> int:
    """The containers of the variant's model; the most of those of its pools."""
    return max((len(it.containers) for it in variant.models), default=1)

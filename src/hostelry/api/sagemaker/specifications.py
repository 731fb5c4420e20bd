"""Specifications of a component in requests, and their merge in updates."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import Params
from hostelry.base.errors import validation_error
from hostelry.domain.component import InferenceComponent
from hostelry.domain.endpoint_config import Variant

Given = Mapping[str, Any]
# Beside a request's own members in `InferenceComponent.given`.
PREVIOUS = "Previous"


def specifications_of(params: Params, variant: Variant) -> tuple[Given, ...]:
    """The specifications of a request, at least one of which is for the variant's instances.

    One without InstanceType is for every type; where several are given, each names its own.
    """
    given = all_given(params)
    types = [it.get("InstanceType") for it in given]
    if len(given) > 1 and None in types:
        raise validation_error(
            f"Specifications.{types.index(None) + 1}.InstanceType is required where several are"
            " given."
        )
    if len(set(types)) < len(types):
        raise validation_error("Specifications name an instance type twice; each needs its own.")
    if None not in types and not set(types) & set(variant.instance_types):
        raise for_other_types(params, [str(it) for it in types], variant)
    return given


def all_given(params: Params) -> tuple[Given, ...]:
    """Specification or Specifications, of which exactly one must be there."""
    single, several = params.get("Specification"), params.get("Specifications")
    if (single is None) == (several is None):
        given = "both were" if single is not None else "none was"
        raise validation_error(
            f"Exactly one of Specification and Specifications is required; {given} given."
        )
    return (single,) if single is not None else tuple(several or ())


def for_other_types(params: Params, types: Sequence[str], variant: Variant) -> Exception:
    """The refusal of specifications that are for none of the variant's instances."""
    hosts = ", ".join(variant.instance_types)
    if params.get("Specification") is not None:
        return validation_error(
            f"Specification.InstanceType is {types[0]}; the variant's instances are {hosts}."
        )
    return validation_error(
        f"None of Specifications is for {hosts}, which the variant's instances are; they are for"
        f" {', '.join(types)}."
    )


def given_in_force(component: InferenceComponent) -> Given:
    """The request that the component's present spec came from: after a rollback, the one before."""
    spec = component.spec or component.adapter
    previous: Given = component.given.get(PREVIOUS) or {}
    if spec is not None and previous.get("generation") == spec.generation:
        return previous
    return component.given


def given_next(component: InferenceComponent, specifications: Given) -> dict[str, Any]:
    """`given` of an updated component, with the specifications that a rollback restores."""
    spec = component.spec or component.adapter
    before = given_in_force(component)
    previous = {name: before.get(name) for name in ("Specification", "Specifications")}
    return {
        **component.given,
        **specifications,
        PREVIOUS: {**previous, "generation": spec.generation if spec else None},
    }


def given_after(params: Params, merged: Sequence[Given]) -> Given:
    """The members that Describe echoes after an update: `merged`, in the form of `params`."""
    if params.get("Specifications") is None:
        return {"Specification": merged[0], "Specifications": None}
    return {"Specification": None, "Specifications": list(merged)}


def changed_by(new: Given, old: Sequence[Given], variant: Variant) -> Given | None:
    """The one of `old` that `new` changes; None where `new` must be complete.

    | `old` | `new` changes |
    | --- | --- |
    | one specification | that one |
    | one for the InstanceType of `new` | that one |
    | `new` has no InstanceType, one for a type of the variant | that one |
    | otherwise | None |
    """
    if len(old) == 1:
        return old[0]
    named = new.get("InstanceType")
    types = variant.instance_types if named is None else (named,)
    fitting = [it for it in old if it.get("InstanceType") in types]
    return fitting[0] if len(fitting) == 1 else None


def merged(old: Given, new: Given) -> Given:
    """`old` with the members of `new`.

    | `new` has | result |
    | --- | --- |
    | ModelName, or Container with an Image | ModelName and Container of `new` alone |
    | Container without an Image | the old Container with the members of the new one |
    """
    override = new.get("Container") or {}
    kept = dict(old)
    if new.get("ModelName") or override.get("Image"):
        for field in ("ModelName", "Container"):
            kept.pop(field, None)
    before = kept.get("Container") or {}
    container = {**before, **override}
    if before.get("Environment") and override.get("Environment"):
        container["Environment"] = {**before["Environment"], **override["Environment"]}
    return {**kept, **new, **({"Container": container} if container else {})}

"""A plan under construction, and the steps of models. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.expansion import WantedState
from hostelry.cli.declared.forms import hashed_name
from hostelry.cli.declared.local_artifacts import ArtifactUploads
from hostelry.cli.declared.observation import ObservedState
from hostelry.cli.declared.resource import (
    NAME_TAG,
    OWNER_TAG,
    UNNAMED_SET,
    ApplyStep,
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    StepAct,
    Until,
    Wanted,
    changes,
)

OWN_TAGS = "hostelry:applied-"
AWS_TAGS = "aws:"
MAX_TAG_CHARACTERS = 256
TAG_CALLS = (
    (SAGEMAKER, "AddTags", "ResourceArn"),
    (SAGEMAKER, "DeleteTags", "ResourceArn"),
)


class Planning:
    """The steps so far. `done` has the steps after which a resource is as wanted.

    `gone` has the steps after which a replaced or deleted resource does not exist.
    """

    def __init__(
        self,
        desired: WantedState,
        observed: ObservedState,
        uploads: ArtifactUploads,
        present: frozenset[str],
    ) -> None:
        self.owner, self.role_arn = desired.owner, desired.role_arn
        self.config_names = desired.config_names
        self.wanted, self.observed = desired.resources, observed
        self.uploads, self.present = uploads, present
        self.steps: list[ApplyStep] = []
        self.done: dict[ResourceKey, list[int]] = defaultdict(list)
        self.gone: dict[ResourceKey, list[int]] = {}
        self.replaced: dict[ResourceKey, str] = {}
        self.model_names: dict[str, str] = {}
        self.foreign: list[str] = []

    def of(self, kind: ResourceKind) -> list[Wanted]:
        """The wanted resources of a kind, in document order."""
        return [it for it in self.wanted.values() if it.key.kind is kind]

    def find(self, key: ResourceKey) -> Observed | None:
        """The observed resource. None if it is missing, or is being replaced or deleted."""
        observed = self.observed.resources.get(key)
        if observed is None or key in self.gone or observed.status == "Deleting":
            return None
        return observed

    def find_needs(self, params: Any, *keys: ResourceKey) -> list[int]:
        """The steps that `params` need: uploads of named artifacts, and steps of `keys`."""
        needs = [number for key in keys for number in self.done.get(key, ())]
        for uri in self.uploads.named_in(params):
            needs += self.done.get(ResourceKey(ResourceKind.ARTIFACT, uri), [])
        return needs

    def add(
        self,
        act: StepAct,
        key: ResourceKey,
        call: tuple[str, str, Params],
        *,
        needs: Iterable[int] = (),
        **more: Any,
    ) -> int:
        """Add a step towards the wanted state of `key`. Returns the step's number."""
        service, operation, params = call
        step = ApplyStep(
            number=len(self.steps) + 1,
            act=act,
            key=key,
            service=service,
            operation=operation,
            params=params,
            needs=tuple(sorted({*needs, *self.done[key], *self.gone.get(key, ())})),
            **more,
        )
        self.steps.append(step)
        self.done[key].append(step.number)
        return step.number

    def delete(
        self,
        key: ResourceKey,
        call: tuple[str, str, Params],
        needs: Iterable[int],
        because: str = "",
    ) -> int:
        """Add the deletion of `key`. Returns the step's number."""
        waits = key.kind in (ResourceKind.ENDPOINT, ResourceKind.COMPONENT)
        service, operation, params = call
        step = ApplyStep(
            number=len(self.steps) + 1,
            act=StepAct.DELETE,
            key=key,
            service=service,
            operation=operation,
            params=params,
            needs=tuple(sorted(set(needs))),
            until=Until.GONE if waits else None,
            because=because,
        )
        self.steps.append(step)
        self.gone.setdefault(key, []).append(step.number)
        return step.number

    def tags(self, wanted: Wanted, *, names: bool = False) -> dict[str, str]:
        """The tags of a new resource."""
        own = {OWNER_TAG: self.owner} | ({NAME_TAG: wanted.key.name} if names else {})
        own = own if self.owner else {}
        return {**(wanted.tags or {}), **own}

    def check_owner(self, wanted: Wanted, found: Observed) -> None:
        """Note an error if another set made the resource that a step would change."""
        if self.owner and found.owner not in ("", UNNAMED_SET, self.owner):
            self.foreign.append(
                f'{wanted.place}: {wanted.key} was made by the documents of set "{found.owner}";'
                " change it there, or delete it first"
            )

    def changed_tags(self, wanted: Wanted, found: Observed) -> tuple[dict[str, str], list[str]]:
        """Tags to add, and keys to remove. If the documents have no Tags, other tags stay.

        When documents get a name, the set of this name takes over their resources.
        """
        added: dict[str, str] = {}
        if self.owner != UNNAMED_SET:
            own = (it for it in found.tags if it.startswith(OWN_TAGS) and it != NAME_TAG)
            added = {name: self.owner for name in own if found.tags[name] == UNNAMED_SET}
        if wanted.tags is None:
            return added, []
        added |= {name: it for name, it in wanted.tags.items() if found.tags.get(name) != it}
        removed = [
            name
            for name in found.tags
            if name not in wanted.tags and not name.startswith((OWN_TAGS, AWS_TAGS))
        ]
        return added, removed

    def retag(self, wanted: Wanted, found: Observed, calls: Sequence[tuple[str, str, str]]) -> None:
        """Add steps for changed tags. `calls` are (service, operation, member with the ARN)."""
        added, removed = self.changed_tags(wanted, found)
        adding, removing = calls
        for (service, operation, member), given, what in (
            (adding, tag_members(added, adding[0]), added),
            (removing, {"TagKeys": removed}, removed),
        ):
            if not what:
                continue
            self.check_owner(wanted, found)
            before = {name: found.tags[name] for name in what if name in found.tags}
            after = added if what is added else {}
            self.add(
                StepAct.TAG,
                wanted.key,
                (service, operation, {member: found.arn, **given}),
                changes=changes(before, after, "Tags"),
            )

    def refuse_foreign(self) -> None:
        """Raise TerminalError if a step would change a resource of another set."""
        if self.foreign:
            raise TerminalError("\n".join(self.foreign))


def tag_members(tags: Mapping[str, str], service: str) -> dict[str, Any]:
    """Tags in the format of a service."""
    if not tags:
        return {}
    if service == "application-autoscaling":
        return {"Tags": dict(tags)}
    return {"Tags": [{"Key": name, "Value": it} for name, it in tags.items()]}


def plan_models(planning: Planning) -> None:
    """Create missing models, and note each model's name in AWS in `model_names`."""
    for wanted in planning.of(ResourceKind.MODEL):
        _plan_model(planning, wanted)


def _plan_model(planning: Planning, wanted: Wanted) -> None:
    name = wanted.key.name
    versions = (name, hashed_name(name, wanted.params))
    found = [
        planning.observed.resources.get(ResourceKey(ResourceKind.MODEL, one)) for one in versions
    ]
    for model in found:
        if model is not None and (wanted.only_created or model.params == wanted.params):
            planning.model_names[name] = model.key.name
            if not wanted.only_created:
                planning.retag(wanted, model, TAG_CALLS)
            return
    plain = found[0]
    version = versions[0] if plain is None else versions[1]
    planning.model_names[name] = version
    before = {} if plain is None else plain.params
    params = {
        "ModelName": version,
        "ExecutionRoleArn": planning.role_arn,
        **model_request(wanted.params),
        **tag_members(planning.tags(wanted, names=True), SAGEMAKER),
    }
    planning.add(
        StepAct.CREATE,
        wanted.key,
        (SAGEMAKER, "CreateModel", params),
        needs=planning.find_needs(wanted.params),
        changes=changes(before, wanted.params),
        because="" if plain is None else f"a changed model is a new one: {version}",
    )


def model_request(params: Params) -> dict[str, object]:
    """CreateModel's fields. A single container becomes PrimaryContainer."""
    containers = params["Containers"]
    if len(containers) > 1:
        return dict(params)
    rest = {field: it for field, it in params.items() if field != "Containers"}
    return {"PrimaryContainer": containers[0], **rest}

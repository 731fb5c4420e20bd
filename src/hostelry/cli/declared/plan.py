"""Desired documents and observed resources in, ordered steps out. Pure.

The order of the parts is that of needs: uploads, models, endpoints, components, scaling, alarms;
then old versions of models and configurations, and with `prune` what the set no longer names.
"""

from hostelry.cli.declared.expansion import WantedState
from hostelry.cli.declared.observation import ObservedState
from hostelry.cli.declared.plan_alarms import plan_alarms, plan_first_alarms
from hostelry.cli.declared.plan_components import plan_components, replaced_components
from hostelry.cli.declared.plan_endpoints import plan_endpoints, replaced_endpoints
from hostelry.cli.declared.plan_models import plan_models
from hostelry.cli.declared.plan_prune import plan_old_versions, plan_prune, prune_composites
from hostelry.cli.declared.plan_scaling import plan_scaling
from hostelry.cli.declared.planning import Planning
from hostelry.cli.declared.resource import ResourceKey, ResourceKind
from hostelry.cli.declared.step import Step, StepAct, StepPlan
from hostelry.cli.declared.upload import ArtifactUploads


def plan(
    wanted: WantedState,
    observed: ObservedState,
    uploads: ArtifactUploads,
    present: frozenset[str] = frozenset(),
    *,
    prune: bool = False,
) -> StepPlan:
    """The steps; `present` are the URIs of objects that are there.

    Raises TerminalError where a step would change what another set of documents made.
    """
    planning = Planning(wanted, observed, uploads, present)
    plan_uploads(planning)
    plan_models(planning)
    replaced_endpoints(planning)
    replaced_components(planning)
    if prune:
        prune_composites(planning)
    plan_first_alarms(planning)
    plan_endpoints(planning)
    plan_components(planning)
    plan_scaling(planning, prune=prune)
    plan_alarms(planning)
    plan_old_versions(planning)
    if prune:
        plan_prune(planning)
    planning.refuse_foreign()
    changed = {it.key for it in planning.steps}
    num_same = sum(1 for key in wanted.resources if key not in changed)
    return StepPlan(steps=tuple(planning.steps), num_same=num_same)


def plan_uploads(planning: Planning) -> None:
    """The objects of local artifacts that are not there."""
    for uri, files in planning.uploads.files.items():
        key = ResourceKey(ResourceKind.ARTIFACT, uri)
        for file in files:
            if file.uri not in planning.present:
                step = Step(number=len(planning.steps) + 1, act=StepAct.UPLOAD, key=key, file=file)
                planning.steps.append(step)
                planning.done[key].append(step.number)

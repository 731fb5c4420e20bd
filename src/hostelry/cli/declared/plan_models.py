"""Steps of models. A model never changes: another content is another model, with a hash. Pure."""

from hostelry.cli.declared.change import changes
from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.forms import hashed_name
from hostelry.cli.declared.planning import Planning, tag_members
from hostelry.cli.declared.resource import Params, ResourceKey, ResourceKind, Wanted
from hostelry.cli.declared.step import StepAct

TAG_CALLS = (
    (SAGEMAKER, "AddTags", "ResourceArn"),
    (SAGEMAKER, "DeleteTags", "ResourceArn"),
)


def plan_models(planning: Planning) -> None:
    """Create what is not there; `model_names` has the name of each in AWS."""
    for wanted in planning.of(ResourceKind.MODEL):
        _plan_model(planning, wanted)


def _plan_model(planning: Planning, wanted: Wanted) -> None:
    name = wanted.key.name
    versions = (name, hashed_name(name, wanted.params))
    found = [
        planning.observed.resources.get(ResourceKey(ResourceKind.MODEL, one)) for one in versions
    ]
    for model in found:
        if model is not None and model.params == wanted.params:
            planning.model_names[name] = model.key.name
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
        needs=planning.needs_of(wanted.params),
        changes=changes(before, wanted.params),
        because="" if plain is None else f"a changed model is a new one: {version}",
    )


def model_request(params: Params) -> dict[str, object]:
    """CreateModel's fields: a single container is the primary one."""
    containers = params["Containers"]
    if len(containers) > 1:
        return dict(params)
    rest = {field: it for field, it in params.items() if field != "Containers"}
    return {"PrimaryContainer": containers[0], **rest}

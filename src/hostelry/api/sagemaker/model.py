"""CreateModel, DescribeModel, ListModels and DeleteModel."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.page import ListedResource, list_page
from hostelry.api.refusals import already_exists, echoed, found_in, refuse_isolation
from hostelry.api.sagemaker.containers import containers_of, execution_of
from hostelry.api.tags import tags_of, write_tags
from hostelry.domain.model import Model
from hostelry.domain.validation import check_environment
from hostelry.store.records import Versioned

KIND = "model"
ECHOED = (
    "PrimaryContainer",
    "Containers",
    "InferenceExecutionConfig",
    "ExecutionRoleArn",
    "VpcConfig",
    "EnableNetworkIsolation",
)


def create_model(context: CallContext, params: Params) -> Result:
    """CreateModel; missing artifacts are reported once a model server needs them."""
    scope, name = context.scope, params["ModelName"]
    tags = tags_of(params.get("Tags"))
    refuse_isolation(params)
    containers = containers_of(params)
    check_environment(containers)
    if context.state.models.has_name(scope, name):
        raise already_exists(scope, KIND, name)
    check_execution_role(context, params)
    arn = scope.arn(KIND, name)
    model = Model(
        scope=scope,
        name=name,
        arn=arn,
        created_at=context.now,
        containers=containers,
        execution=execution_of(params),
        given=dict(params),
    )
    context.state.models.put(scope, name, model, expect=None)
    write_tags(context, arn, tags)
    return {"ModelArn": arn}


def describe_model(context: CallContext, params: Params) -> Result:
    """DescribeModel: what was given, and when."""
    model = find_model(context, params["ModelName"]).value
    return {
        "ModelName": model.name,
        "ModelArn": model.arn,
        "CreationTime": model.created_at,
        "EnableNetworkIsolation": False,
        **echoed(model.given, ECHOED),
    }


def list_models(context: CallContext, params: Params) -> Result:
    """ListModels."""
    rows = [
        ListedResource(
            name=model.name,
            created_at=model.created_at,
            summary={
                "ModelName": model.name,
                "ModelArn": model.arn,
                "CreationTime": model.created_at,
            },
        )
        for model in (stored.value for stored in context.state.models.list(context.scope))
    ]
    shown, following = list_page(context, "ListModels", params, rows)
    return {"Models": shown, **following}


def delete_model(context: CallContext, params: Params) -> Result:
    """DeleteModel; endpoints and components that use the model keep their own copy."""
    found = find_model(context, params["ModelName"])
    context.state.models.delete(context.scope, found.value.name, expect=found.version)
    write_tags(context, found.value.arn, {})
    return {}


def find_model(context: CallContext, name: str) -> Versioned[Model]:
    """The model; raises ValidationException where there is none of that name."""
    return found_in(context.state.models, context.scope, KIND, name)

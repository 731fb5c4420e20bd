"""CreateModel, DescribeModel, ListModels and DeleteModel."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echoed, refuse_isolation
from hostelry.api.sagemaker.container import build_containers, parse_execution
from hostelry.api.sagemaker.kinds import MODELS, check_new
from hostelry.api.tags import tags_of, write_tags
from hostelry.domain.model import Model
from hostelry.domain.validation import check_environment

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
    """CreateModel. Missing artifacts are reported once a model server needs them."""
    scope, name = context.scope, params["ModelName"]
    tags = tags_of(params.get("Tags"))
    refuse_isolation(params)
    containers = build_containers(params)
    check_environment(containers)
    check_new(context, KIND, name)
    check_execution_role(context, params)
    arn = scope.arn(KIND, name)
    model = Model(
        scope=scope,
        name=name,
        arn=arn,
        created_at=context.now,
        containers=containers,
        execution=parse_execution(params),
        given=dict(params),
    )
    MODELS.put(context, model)
    write_tags(context, arn, tags)
    return {"ModelArn": arn}


def describe_model(context: CallContext, params: Params) -> Result:
    """DescribeModel."""
    model = MODELS.find(context, params["ModelName"]).value
    return {
        **_summarize(model),
        "EnableNetworkIsolation": False,
        **echoed(model.given, ECHOED),
    }


def list_models(context: CallContext, params: Params) -> Result:
    """ListModels."""
    models = [it for it in MODELS.values(context) if passes(it, params)]
    return list_answer(context, "ListModels", params, "Models", models, _summarize)


def _summarize(model: Model) -> Result:
    return {
        "ModelName": model.name,
        "ModelArn": model.arn,
        "CreationTime": model.created_at,
    }


def delete_model(context: CallContext, params: Params) -> Result:
    """DeleteModel. Endpoints and components that use the model keep their own copy."""
    found = MODELS.find(context, params["ModelName"])
    MODELS.delete(context, found)
    write_tags(context, found.value.arn, {})
    return {}

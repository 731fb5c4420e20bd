"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs and DeleteEndpointConfig."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.page import ListedResource, list_page
from hostelry.api.refusals import (
    already_exists,
    echoed,
    found_in,
    refuse_fields,
    refuse_isolation,
)
from hostelry.api.sagemaker.async_inference import async_inference_of, check_async_model
from hostelry.api.sagemaker.data_capture import (
    check_captured_config,
    check_captured_model,
    data_capture_of,
)
from hostelry.api.sagemaker.model import find_model
from hostelry.api.sagemaker.serverless import check_serverless_model, check_serverless_variants
from hostelry.api.sagemaker.shadow import check_shadow_model, shadow_variants_of
from hostelry.api.sagemaker.variant import variant_of
from hostelry.api.sagemaker.verdict_tag import check_verdict_tag
from hostelry.api.tags import tags_of, write_tags
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.metrics_config import metrics_config_of
from hostelry.domain.validation import check_metrics, check_variants
from hostelry.store.records import Versioned

KIND = "endpoint-config"
UNSUPPORTED = (
    "ExplainerConfig",
    "CrossRegionTrafficConfig",
)
ECHOED = (
    "ProductionVariants",
    "ShadowProductionVariants",
    "DataCaptureConfig",
    "KmsKeyId",
    "ExecutionRoleArn",
    "VpcConfig",
    "EnableNetworkIsolation",
    "MetricsConfig",
    "AsyncInferenceConfig",
)


def create_endpoint_config(context: CallContext, params: Params) -> Result:
    """CreateEndpointConfig."""
    scope, name = context.scope, params["EndpointConfigName"]
    tags = tags_of(params.get("Tags"))
    check_verdict_tag(tags, KIND)
    config = config_of(context, params)
    for variant in config.variants:
        for model_name in (variant.model_name, *(pool.model_name for pool in variant.pools)):
            if model_name is not None:
                model = find_model(context, model_name).value
                if config.async_inference is not None:
                    check_async_model(model)
                if variant.serverless is not None:
                    check_serverless_model(model)
                if config.capture is not None and config.capture.is_enabled:
                    check_captured_model(model)
                if config.has_shadow:
                    check_shadow_model(model)
    if context.state.endpoint_configs.has_name(scope, name):
        raise already_exists(scope, KIND, name)
    check_execution_role(context, params)
    context.state.endpoint_configs.put(scope, name, config, expect=None)
    write_tags(context, config.arn, tags)
    return {"EndpointConfigArn": config.arn}


def describe_endpoint_config(context: CallContext, params: Params) -> Result:
    """DescribeEndpointConfig: what was given, and when."""
    config = find_endpoint_config(context, params["EndpointConfigName"]).value
    return {
        "EndpointConfigName": config.name,
        "EndpointConfigArn": config.arn,
        "CreationTime": config.created_at,
        "EnableNetworkIsolation": False,
        **echoed(config.given, ECHOED),
    }


def list_endpoint_configs(context: CallContext, params: Params) -> Result:
    """ListEndpointConfigs."""
    rows = [
        ListedResource(
            name=config.name,
            created_at=config.created_at,
            summary={
                "EndpointConfigName": config.name,
                "EndpointConfigArn": config.arn,
                "CreationTime": config.created_at,
            },
        )
        for config in (it.value for it in context.state.endpoint_configs.list(context.scope))
    ]
    shown, following = list_page(context, "ListEndpointConfigs", params, rows)
    return {"EndpointConfigs": shown, **following}


def delete_endpoint_config(context: CallContext, params: Params) -> Result:
    """DeleteEndpointConfig; endpoints made from the configuration keep their own copy."""
    found = find_endpoint_config(context, params["EndpointConfigName"])
    context.state.endpoint_configs.delete(context.scope, found.value.name, expect=found.version)
    write_tags(context, found.value.arn, {})
    return {}


def find_endpoint_config(context: CallContext, name: str) -> Versioned[EndpointConfig]:
    """The configuration; raises ValidationException where there is none of that name."""
    return found_in(context.state.endpoint_configs, context.scope, KIND, name)


def config_of(context: CallContext, params: Params) -> EndpointConfig:
    """The configuration that a request describes, checked."""
    check_serverless_variants(params)
    refuse_fields(params, UNSUPPORTED)
    refuse_isolation(params)
    variants = tuple(
        variant_of(given, f"ProductionVariants.{number}")
        for number, given in enumerate(params["ProductionVariants"], start=1)
    )
    variants += shadow_variants_of(params, variants)
    check_variants(variants, has_execution_role=bool(params.get("ExecutionRoleArn")))
    check_metrics(metrics_config_of(params))
    name = params["EndpointConfigName"]
    config = EndpointConfig(
        scope=context.scope,
        name=name,
        arn=context.scope.arn(KIND, name),
        created_at=context.now,
        variants=variants,
        async_inference=async_inference_of(params, variants),
        capture=data_capture_of(params),
        given=dict(params),
    )
    check_captured_config(config.capture, config)
    return config

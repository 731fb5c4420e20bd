"""CreateEndpointConfig, DescribeEndpointConfig, ListEndpointConfigs and DeleteEndpointConfig."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, refuse_fields, refuse_isolation
from hostelry.api.sagemaker.async_inference import build_async_inference, check_async_model
from hostelry.api.sagemaker.data_capture import (
    build_data_capture,
    check_captured_config,
    check_captured_model,
)
from hostelry.api.sagemaker.kinds import ENDPOINT_CONFIGS, MODELS, check_new
from hostelry.api.sagemaker.serverless import check_serverless_model, check_serverless_variants
from hostelry.api.sagemaker.tag import check_verdict_tag
from hostelry.api.sagemaker.variant import build_shadow_variants, build_variant, check_shadow_model
from hostelry.api.tags import parse_tags, write_tags
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.metric import get_metrics_config
from hostelry.domain.validation import check_metrics, check_variants

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
    name = params["EndpointConfigName"]
    tags = parse_tags(params.get("Tags"))
    check_verdict_tag(tags, KIND)
    config = _build_config(context, params)
    for variant in config.variants:
        for model_name in (variant.model_name, *(pool.model_name for pool in variant.pools)):
            if model_name is not None:
                model = MODELS.find(context, model_name).value
                if config.async_inference is not None:
                    check_async_model(model)
                if variant.serverless is not None:
                    check_serverless_model(model)
                if config.capture is not None and config.capture.is_enabled:
                    check_captured_model(model)
                if config.has_shadow:
                    check_shadow_model(model)
    check_new(context, KIND, name)
    check_execution_role(context, params)
    ENDPOINT_CONFIGS.put(context, config)
    write_tags(context, config.arn, tags)
    return {"EndpointConfigArn": config.arn}


def describe_endpoint_config(context: CallContext, params: Params) -> Result:
    """DescribeEndpointConfig."""
    config = ENDPOINT_CONFIGS.find(context, params["EndpointConfigName"]).value
    return {
        **_summarize(config),
        "EnableNetworkIsolation": False,
        **echo_members(config.given, ECHOED),
    }


def list_endpoint_configs(context: CallContext, params: Params) -> Result:
    """ListEndpointConfigs."""
    configs = [it for it in ENDPOINT_CONFIGS.values(context) if passes(it, params)]
    operation, member = "ListEndpointConfigs", "EndpointConfigs"
    return list_answer(context, operation, params, member, configs, _summarize)


def _summarize(config: EndpointConfig) -> Result:
    return {
        "EndpointConfigName": config.name,
        "EndpointConfigArn": config.arn,
        "CreationTime": config.created_at,
    }


def delete_endpoint_config(context: CallContext, params: Params) -> Result:
    """DeleteEndpointConfig. Endpoints made from the configuration keep their own copy."""
    found = ENDPOINT_CONFIGS.find(context, params["EndpointConfigName"])
    ENDPOINT_CONFIGS.delete(context, found)
    write_tags(context, found.value.arn, {})
    return {}


def _build_config(context: CallContext, params: Params) -> EndpointConfig:
    check_serverless_variants(params)
    refuse_fields(params, UNSUPPORTED)
    refuse_isolation(params)
    variants = tuple(
        build_variant(given, f"ProductionVariants.{number}")
        for number, given in enumerate(params["ProductionVariants"], start=1)
    )
    variants += build_shadow_variants(params, variants)
    check_variants(variants, has_execution_role=bool(params.get("ExecutionRoleArn")))
    check_metrics(get_metrics_config(params))
    name = params["EndpointConfigName"]
    config = EndpointConfig(
        scope=context.scope,
        name=name,
        arn=context.scope.arn(KIND, name),
        created_at=context.now,
        variants=variants,
        async_inference=build_async_inference(params, variants),
        capture=build_data_capture(params),
        given=dict(params),
    )
    check_captured_config(config.capture, config)
    return config

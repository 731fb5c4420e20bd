"""AsyncInferenceConfig of requests: its checks, and the test message to its topics."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.refusals import unsupported
from hostelry.api.rights import check_delivery, is_own
from hostelry.api.sagemaker.model import parse_s3_uri
from hostelry.base.errors import validation_error
from hostelry.domain.async_request import DEFAULT_CONCURRENT, AsyncInference
from hostelry.domain.endpoint_config import EndpointConfig, Variant
from hostelry.domain.model import Model
from hostelry.messaging.topic_publisher import TopicMissingError

FIELD = "AsyncInferenceConfig"
OUTPUT = f"{FIELD}.OutputConfig"
SUCCESS = "SUCCESS_NOTIFICATION_TOPIC"
ERROR = "ERROR_NOTIFICATION_TOPIC"
TEST_NOTIFICATION = json.dumps(
    {"eventVersion": "1.0", "eventSource": "aws:sagemaker", "eventName": "TestNotification"}
)


def build_async_inference(params: Params, variants: Sequence[Variant]) -> AsyncInference | None:
    """The AsyncInferenceConfig of a request, or None if requests are not queued."""
    given = params.get(FIELD)
    if given is None:
        return None
    check_async_variants(variants)
    output = given["OutputConfig"]
    notified = output.get("NotificationConfig") or {}
    client = given.get("ClientConfig") or {}
    if not output.get("S3OutputPath"):
        raise validation_error(
            f"{OUTPUT}.S3OutputPath is required: without it there is no place for the answers."
        )
    found = AsyncInference(
        output_uri=_parse_prefix(output["S3OutputPath"], f"{OUTPUT}.S3OutputPath"),
        failure_uri=_parse_prefix(output["S3FailurePath"], f"{OUTPUT}.S3FailurePath")
        if output.get("S3FailurePath")
        else None,
        max_concurrent_per_instance=client.get(
            "MaxConcurrentInvocationsPerInstance", DEFAULT_CONCURRENT
        ),
        success_topic_arn=notified.get("SuccessTopic") or None,
        error_topic_arn=notified.get("ErrorTopic") or None,
        include_response_in=tuple(notified.get("IncludeInferenceResponseIn") or ()),
        kms_key_id=output.get("KmsKeyId") or None,
    )
    _check_included(found)
    return found


def _parse_prefix(uri: str, path: str) -> str:
    """The ``s3://bucket/prefix`` that `uri` means, without a slash at its end."""
    return parse_s3_uri(uri, path, is_prefix=True).rstrip("/")


def _check_included(settings: AsyncInference) -> None:
    """Refuse IncludeInferenceResponseIn for a topic that is not given."""
    path = f"{OUTPUT}.NotificationConfig"
    topics = ((SUCCESS, "SuccessTopic"), (ERROR, "ErrorTopic"))
    given = {SUCCESS: settings.success_topic_arn, ERROR: settings.error_topic_arn}
    for asked, field in topics:
        if asked in settings.include_response_in and given[asked] is None:
            raise validation_error(
                f"{path}.IncludeInferenceResponseIn has {asked}, but {path}.{field} is not given."
            )


def check_async_variants(variants: Sequence[Variant]) -> None:
    """Refuse endpoints for components: InvokeEndpointAsync has no header that names one."""
    without_model = next((it for it in variants if it.model_name is None), None)
    if without_model is not None:
        raise validation_error(
            f'{FIELD} needs a ModelName on production variant "{without_model.name}":'
            " InvokeEndpointAsync cannot name an inference component."
        )


def check_async_model(model: Model) -> None:
    """Refuse models whose requests name one of many: InvokeEndpointAsync has no header for that."""
    if model.is_direct:
        raise unsupported(
            f'{FIELD} with InferenceExecutionConfig.Mode Direct of model "{model.name}"',
            "InvokeEndpointAsync has no TargetContainerHostname; create a model of one container,"
            " or a pipeline (Mode Serial).",
        )
    if model.is_multi_model:
        raise unsupported(
            f'{FIELD} with the multi-model container (Mode MultiModel) of model "{model.name}"',
            "InvokeEndpointAsync has no TargetModel; create a model from the one archive.",
        )


def notify_topics(context: CallContext, config: EndpointConfig) -> None:
    """Send the test message to the configuration's topics. Raises for a missing topic.

    Source: "Check prediction results" in the SageMaker developer guide: CreateEndpoint,
    UpdateEndpoint and UpdateEndpointWeightsAndCapacities send it.
    """
    settings = config.async_inference
    if settings is None:
        return
    given = (settings.success_topic_arn, settings.error_topic_arn)
    topics = dict.fromkeys(arn for arn in given if arn is not None)
    if not topics:
        return
    publisher = context.messages.topics
    for arn in topics:
        if not is_own(context, arn) or publisher.topic(arn) is None:
            raise _missing_topic(config, arn)
        check_delivery(context, arn)
    for arn in topics:
        try:
            publisher.publish(arn, None, TEST_NOTIFICATION)
        except TopicMissingError:  # deleted in the meantime
            raise _missing_topic(config, arn) from None


def _missing_topic(config: EndpointConfig, arn: str) -> Exception:
    return validation_error(
        f'{OUTPUT}.NotificationConfig of endpoint configuration "{config.arn}" names topic'
        f" {arn}, which does not exist. Create the topic first, or a configuration without it."
    )


def describe_async_config(config: EndpointConfig) -> Mapping[str, Any]:
    """AsyncInferenceConfig as DescribeEndpoint shows it."""
    given = config.given.get(FIELD)
    return {} if given is None else {FIELD: given}

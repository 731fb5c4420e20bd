"""ShadowProductionVariants of requests: the one variant that gets copies of requests.

Source: ShadowProductionVariants of CreateEndpointConfig in the SageMaker API reference, and
"Shadow variants" in the developer guide for what it cannot be combined with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hostelry.api.context import Params
from hostelry.api.refusals import unsupported
from hostelry.api.sagemaker.containers import check_one_container
from hostelry.api.sagemaker.variant import variant_of
from hostelry.base.errors import validation_error
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.model import Model

FIELD = "ShadowProductionVariants"


def shadow_variants_of(params: Params, production: Sequence[Variant]) -> tuple[Variant, ...]:
    """The shadow variant of a request, checked; none where requests are not mirrored."""
    given: Sequence[Mapping[str, Any]] = params.get(FIELD) or ()
    if not given:
        return ()
    if len(given) != 1 or len(production) != 1:
        raise validation_error(
            f"{FIELD} needs exactly one production variant and one shadow variant; "
            f"{len(production)} and {len(given)} were given."
        )
    if params.get("AsyncInferenceConfig") is not None:
        raise validation_error(
            f"{FIELD} cannot be given beside AsyncInferenceConfig; leave one of them out."
        )
    if given[0].get("ServerlessConfig") is not None:
        raise validation_error(
            f"{FIELD}.1.ServerlessConfig is not possible: a shadow variant has instances."
        )
    shadow = replace(variant_of(given[0], f"{FIELD}.1"), is_shadow=True)
    for variant in (*production, shadow):
        if variant.model_name is None:
            raise validation_error(
                f'{FIELD} needs a ModelName on variant "{variant.name}": requests for inference'
                " components cannot be mirrored."
            )
    return (shadow,)


def check_shadow_model(model: Model) -> None:
    """Refuse several containers and a multi-model one, on either variant."""
    check_one_container(model, FIELD, "Mirrored requests go to one container.")
    if model.is_multi_model:
        raise unsupported(
            f'{FIELD} with the multi-model container (Mode MultiModel) of model "{model.name}"',
            "Create a model from the one archive.",
        )

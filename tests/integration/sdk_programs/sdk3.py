"""The resource classes of the SageMaker Python SDK v3. Run under `hostelry exec`."""

import json

from botocore.exceptions import ClientError
from sagemaker.core.helper.session_helper import get_execution_role
from sagemaker.core.resources import EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, ProductionVariant

NAME = "model-from-sdk3"
role = get_execution_role()
model = Model.create(
    model_name=NAME,
    primary_container=ContainerDefinition(
        image="763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.30.0-lmi",
        model_data_url="s3://bucket/model.tar.gz",
    ),
    execution_role_arn=role,
)
listed = [it.model_name for it in Model.get_all(name_contains=NAME)]
EndpointConfig.create(
    endpoint_config_name="config-from-sdk3",
    production_variants=[
        ProductionVariant(
            variant_name="AllTraffic",
            model_name=NAME,
            initial_instance_count=1,
            instance_type="ml.m5.large",
        )
    ],
)
config = EndpointConfig.get("config-from-sdk3")
config.delete()
model.delete()
try:
    Model.get(NAME)
    gone = False
except ClientError as error:
    gone = "Could not find" in str(error)
print(
    json.dumps(
        {
            "role": role,
            "model": model.model_name,
            "listed": listed,
            "variant": config.production_variants[0].variant_name,
            "gone": gone,
        }
    )
)

"""Deploy with the SageMaker SDK v3's resource classes: a model endpoint, invoked and deleted.

Arguments: the s3:// prefix of the base model. Run under `hostelry exec`.
"""

import json
import sys

import boto3
from sagemaker.core.helper.session_helper import get_execution_role
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, ProductionVariant

role = get_execution_role()
account = boto3.client("sts").get_caller_identity()["Account"]
image = f"{account}.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.27.0"
model = Model.create(
    model_name="from-sdk3",
    primary_container=ContainerDefinition(
        image=image, environment={"OPTION_MODEL_ID": sys.argv[1], "OPTION_DTYPE": "bf16"}
    ),
    execution_role_arn=role,
)
config = EndpointConfig.create(
    endpoint_config_name="from-sdk3",
    production_variants=[
        ProductionVariant(
            variant_name="AllTraffic",
            model_name=model.model_name,
            instance_type="ml.g5.xlarge",
            initial_instance_count=1,
        )
    ],
)
endpoint = Endpoint.create(endpoint_name="from-sdk3", endpoint_config_name="from-sdk3")
endpoint.wait_for_status("InService")
parameters = {"max_new_tokens": 4, "do_sample": False}
body = {"inputs": "The capital of France is", "parameters": parameters}
answer = endpoint.invoke(body=json.dumps(body), content_type="application/json")
endpoint.delete()
endpoint.wait_for_delete()
config.delete()
model.delete()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"answer": json.loads(answer.body.read())["generated_text"]}))

"""A failed deployment raises the SDK v2's exception, with the endpoint's FailureReason."""

import json
import uuid

import boto3
from sagemaker import Session, get_execution_role
from sagemaker.exceptions import UnexpectedStatusException
from sagemaker.model import Model

name, session = f"failure-{uuid.uuid4().hex[:8]}", Session()
model = Model(
    image_uri="echo:1",
    env={"ECHO_MODE": "exit"},
    role=get_execution_role(),
    sagemaker_session=session,
    name=name,
)
try:
    model.deploy(initial_instance_count=1, instance_type="ml.m5.xlarge", endpoint_name=name)
    raised = ""
except UnexpectedStatusException as error:
    raised = str(error)
reason = boto3.client("sagemaker").describe_endpoint(EndpointName=name)["FailureReason"]
session.delete_endpoint(name)
session.delete_endpoint_config(name)
model.delete_model()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"raised": raised, "reason": reason}))

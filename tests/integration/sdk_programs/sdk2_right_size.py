"""The right size of a model with the SageMaker Python SDK v2, and a deployment of the best result.

Arguments: an image, the URI of a model, the URI of a sample payload, a role, an instance type, the
payload's content type, the framework by AWS's name, and a variable with its values as JSON. Run
under `hostelry exec`.
"""

import json
import sys
import uuid

from sagemaker import Session
from sagemaker.inference_recommender.inference_recommender_mixin import (
    ModelLatencyThreshold,
    Phase,
)
from sagemaker.model import Model
from sagemaker.parameter import CategoricalParameter

image, model_uri, payload_uri, role, instance_type, content_type, framework, ranges = sys.argv[1:]
session, unique_id = Session(), uuid.uuid4().hex[:8]
model = Model(
    image_uri=image,
    model_data=model_uri,
    role=role,
    name=f"sized-{unique_id}",
    sagemaker_session=session,
)
model.right_size(
    sample_payload_url=payload_uri,
    supported_content_types=[content_type],
    job_name=f"sizes-{unique_id}",
    framework=framework,
    job_duration_in_seconds=240,
    hyperparameter_ranges=[
        {
            "instance_types": CategoricalParameter([instance_type]),
            **{name: CategoricalParameter(values) for name, values in json.loads(ranges).items()},
        }
    ],
    phases=[Phase(8, 1, 0), Phase(4, 2, 0)],
    max_invocations=10_000_000,
    model_latency_thresholds=[ModelLatencyThreshold("P95", 5_000)],
    max_tests=2,
    max_parallel_tests=1,
    log_level="Verbose",
)
configurations = [it["EndpointConfiguration"] for it in model.inference_recommendations]
types = [it["InstanceType"] for it in configurations]
best = model.inference_recommendations[0]
model.name = None  # the variables of the recommendation need a new model
predictor = model.deploy(
    inference_recommendation_id=best["RecommendationId"], endpoint_name=f"sized-{unique_id}"
)
endpoint = session.sagemaker_client.describe_endpoint(EndpointName=f"sized-{unique_id}")
variables = session.sagemaker_client.describe_model(ModelName=model.name)["PrimaryContainer"]
session.delete_endpoint(f"sized-{unique_id}")
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "job": f"sizes-{unique_id}",
            "recommended": types,
            "metrics": best["Metrics"],
            "status": endpoint["EndpointStatus"],
            "environment": variables["Environment"],
        }
    )
)

"""Asynchronous inference with the SageMaker Python SDK v2: deploy, predict, wait, fail, delete.

Arguments: a model's archive, its image, a topic, and rows as JSON. Run under `hostelry exec`.
"""

import json
import sys

from sagemaker import Session, get_execution_role
from sagemaker.async_inference import AsyncInferenceConfig, WaiterConfig
from sagemaker.deserializers import JSONDeserializer, StringDeserializer
from sagemaker.exceptions import AsyncInferenceModelError
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.predictor_async import AsyncPredictor
from sagemaker.serializers import JSONSerializer

archive, image, topic, text = sys.argv[1:]
rows, session = json.loads(text), Session()
model = Model(
    image_uri=image,
    model_data=archive,
    role=get_execution_role(),
    name="sdk2-async",
    predictor_cls=Predictor,
    sagemaker_session=session,
)
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name="sdk2-async",
    async_inference_config=AsyncInferenceConfig(
        max_concurrent_invocations_per_instance=2,
        notification_config={
            "SuccessTopic": topic,
            "ErrorTopic": topic,
            "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"],
        },
    ),
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
)
assert isinstance(predictor, AsyncPredictor)
waiter = WaiterConfig(max_attempts=30, delay=1)
waited = predictor.predict(data=rows, waiter_config=waiter)
later = predictor.predict_async(data=rows, inference_id="mine")
result = later.get_result(waiter)
predictor.deserializer = StringDeserializer()
try:
    predictor.predict(data={"no": "rows"}, waiter_config=waiter)
    failure = None
except AsyncInferenceModelError as error:
    failure = str(error)
settings = session.sagemaker_client.describe_endpoint(EndpointName="sdk2-async")
predictor.delete_endpoint()
model.delete_model()
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "waited": waited,
            "result": result,
            "output": later.output_path,
            "failure": failure,
            "settings": settings["AsyncInferenceConfig"],
        }
    )
)

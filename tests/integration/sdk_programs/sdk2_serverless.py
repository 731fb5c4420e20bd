"""Serverless inference with the SageMaker Python SDK v2: deploy, predict, delete.

Arguments: a model's archive, its image, and rows as JSON. Run under `hostelry exec`.
"""

import json
import sys

from sagemaker import Session, get_execution_role
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer
from sagemaker.serverless import ServerlessInferenceConfig

archive, image, text = sys.argv[1:]
rows, session = json.loads(text), Session()
model = Model(
    image_uri=image,
    model_data=archive,
    role=get_execution_role(),
    name="sdk2-serverless",
    predictor_cls=Predictor,
    sagemaker_session=session,
)
predictor = model.deploy(
    endpoint_name="sdk2-serverless",
    serverless_inference_config=ServerlessInferenceConfig(
        memory_size_in_mb=1024, max_concurrency=2, provisioned_concurrency=1
    ),
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
)
predicted = predictor.predict(rows)
(variant,) = session.sagemaker_client.describe_endpoint(EndpointName="sdk2-serverless")[
    "ProductionVariants"
]
predictor.delete_endpoint()
model.delete_model()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"predicted": predicted, "config": variant["CurrentServerlessConfig"]}))

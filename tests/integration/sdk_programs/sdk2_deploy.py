"""Deploy with the SageMaker Python SDK v2: a base model with packed adapters, as a component.

Arguments: the folder of the base model, the folder of the adapters. Run under `hostelry exec`.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from sagemaker import Session, get_execution_role, image_uris
from sagemaker.compute_resource_requirements import ResourceRequirements
from sagemaker.deserializers import JSONDeserializer
from sagemaker.enums import EndpointType
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

model_folder, adapters_folder = (Path(given) for given in sys.argv[1:])
session = Session()
role = get_execution_role()
base = session.upload_data(str(model_folder), key_prefix="sdk2/base")
with tempfile.TemporaryDirectory() as folder:
    archive = Path(folder) / "adapters.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for style in ("es", "fr", "pirate"):
            packed.add(adapters_folder / style, f"adapters/{style}")
    adapters = session.upload_data(str(archive), key_prefix="sdk2")

model = Model(
    image_uri=image_uris.retrieve("djl-deepspeed", session.boto_region_name, version="0.27.0"),
    model_data=adapters,
    role=role,
    name="from-sdk2",
    env={"OPTION_MODEL_ID": f"{base}/", "OPTION_ENABLE_LORA": "true", "OPTION_DTYPE": "bf16"},
    predictor_cls=Predictor,
    sagemaker_session=session,
)
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.g5.12xlarge",
    endpoint_name="from-sdk2",
    inference_component_name="from-sdk2",
    endpoint_type=EndpointType.INFERENCE_COMPONENT_BASED,
    resources=ResourceRequirements(
        requests={"num_accelerators": 1, "memory": 2048, "copies": 1}, limits={}
    ),
    serializer=JSONSerializer(),
    deserializer=JSONDeserializer(),
    container_startup_health_check_timeout=600,
)
predictor.serializer, predictor.deserializer = JSONSerializer(), JSONDeserializer()
question = {"messages": [{"role": "user", "content": "Tell me about cats."}], "temperature": 0}
plain = predictor.predict({**question, "max_tokens": 16})
pirate = predictor.predict({**question, "max_tokens": 16, "adapters": "pirate"})
predictor.delete_predictor(wait=True)
predictor.delete_endpoint()
model.delete_model()
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "plain": plain["choices"][0]["message"]["content"],
            "pirate": pirate["choices"][0]["message"]["content"],
        }
    )
)

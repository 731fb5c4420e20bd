"""An LLM of the Hugging Face Hub with the SageMaker Python SDK v2: deploy, predict, stream, delete.

Arguments: the class (DJLModel or HuggingFaceModel) and the model's id. Run under `hostelry exec`.
"""

import json
import sys
import uuid

from sagemaker import Session, get_execution_role
from sagemaker.deserializers import JSONDeserializer
from sagemaker.djl_inference import DJLModel
from sagemaker.huggingface import HuggingFaceModel, get_huggingface_llm_image_uri
from sagemaker.iterators import LineIterator
from sagemaker.serializers import JSONSerializer

kind, model_id = sys.argv[1:]
session, role, unique_id = Session(), get_execution_role(), uuid.uuid4().hex[:8]
if kind == "DJLModel":
    model = DJLModel(
        model_id=model_id, role=role, sagemaker_session=session, env={"OPTION_DTYPE": "bf16"}
    )
else:
    model = HuggingFaceModel(
        image_uri=get_huggingface_llm_image_uri("huggingface"),
        env={"HF_MODEL_ID": model_id, "SM_NUM_GPUS": "1", "MAX_TOTAL_TOKENS": "256"},
        role=role,
        sagemaker_session=session,
    )
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.g5.xlarge",
    endpoint_name=f"{kind.lower()}-{unique_id}",
    container_startup_health_check_timeout=600,
)
predictor.serializer, predictor.deserializer = JSONSerializer(), JSONDeserializer()
request = {
    "inputs": "What are falcons?",
    "parameters": {"max_new_tokens": 12, "do_sample": False},
}
answer = predictor.predict(request)
text = (answer[0] if isinstance(answer, list) else answer)["generated_text"]
lines = predictor.predict_stream({**request, "stream": True}, iterator=LineIterator)
pieces = [line.decode() for line in lines if line]
image = model.image_uri
predictor.delete_model()
predictor.delete_endpoint()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"image": image, "first": text, "pieces": pieces}))

"""A trained model with the SageMaker Python SDK v2's own class and predictor: deploy, predict.

Arguments: the class, a model.tar.gz, an entry point or "", rows as JSON. Run under
`hostelry exec`.
"""

import json
import sys
import uuid
from typing import Any

import numpy
from sagemaker import Session, get_execution_role
from sagemaker.huggingface import HuggingFaceModel
from sagemaker.pytorch import PyTorchModel
from sagemaker.sklearn import SKLearnModel
from sagemaker.tensorflow import TensorFlowModel
from sagemaker.xgboost import XGBoostModel

kind, archive, entry_point, text = sys.argv[1:]
session, unique_id, rows = Session(), uuid.uuid4().hex[:8], json.loads(text)
name = f"{kind.lower()}-{unique_id}"
CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "SKLearnModel": (SKLearnModel, {"framework_version": "1.2-1", "py_version": "py3"}),
    "XGBoostModel": (XGBoostModel, {"framework_version": "1.7-1"}),
    "PyTorchModel": (PyTorchModel, {"framework_version": "2.6.0", "py_version": "py312"}),
    "TensorFlowModel": (TensorFlowModel, {"framework_version": "2.19.0"}),
    "HuggingFaceModel": (
        HuggingFaceModel,
        {
            "transformers_version": "4.51.3",
            "pytorch_version": "2.6.0",
            "py_version": "py312",
            "env": {"HF_TASK": "text-classification"},
        },
    ),
}
model_class, versions = CLASSES[kind]
model = model_class(
    model_data=session.upload_data(archive, key_prefix=f"frameworks/{unique_id}"),
    role=get_execution_role(),
    sagemaker_session=session,
    name=name,
    **({"entry_point": entry_point} if entry_point else {}),
    **versions,
)
predictor = model.deploy(initial_instance_count=1, instance_type="ml.m5.large", endpoint_name=name)
sent = {
    "XGBoostModel": "\n".join(
        " ".join(["0", *(f"{index}:{it}" for index, it in enumerate(row))]) for row in rows
    ),
    "SKLearnModel": numpy.array(rows),
    "PyTorchModel": numpy.array(rows).astype("float32") if kind == "PyTorchModel" else None,
    "TensorFlowModel": {"instances": rows},
    "HuggingFaceModel": {"inputs": rows},
}
answer = predictor.predict(sent[kind])
image = session.describe_model(name)["PrimaryContainer"]["Image"]
predictor.delete_endpoint()
model.delete_model()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"image": image, "answer": answer}, default=lambda it: it.tolist()))

"""The user's code with the SageMaker Python SDK v2: `entry_point`, `source_dir`, weights in S3.

Argument: the class, PyTorchModel, SKLearnModel or Model. Run under `hostelry exec`.
"""

import json
import sys
import tarfile
import tempfile
import uuid
from pathlib import Path

from sagemaker import Session, get_execution_role, image_uris
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.pytorch import PyTorchModel
from sagemaker.serializers import JSONSerializer
from sagemaker.sklearn import SKLearnModel

CODE = """
import json, pathlib
from factor import FACTOR

def model_fn(model_dir):
    return json.loads((pathlib.Path(model_dir) / "weights.json").read_text())

def predict_fn(data, model):
    return [FACTOR * sum(a * b for a, b in zip(row, model)) for row in data]
"""
(kind,) = sys.argv[1:]
session, unique_id = Session(), uuid.uuid4().hex[:8]
name = f"{kind.lower()}-{unique_id}"


def packed_weights(folder: Path) -> str:
    """Upload the weights as a model.tar.gz to S3."""
    (folder / "weights.json").write_text("[1, 10, 100]")
    archive = folder / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / "weights.json", arcname="weights.json")
    uploaded: str = session.upload_data(str(archive), key_prefix=f"entry-point/{unique_id}")
    return uploaded


def model_of(folder: Path, factor: int, suffix: str = "") -> Model:
    """A model of this class whose code multiplies by `factor`."""
    source = folder / f"source-{factor}"
    source.mkdir()
    (source / "inference.py").write_text(CODE)
    (source / "factor.py").write_text(f"FACTOR = {factor}\n")
    given = {
        "model_data": weights,
        "entry_point": "inference.py",
        "source_dir": str(source),
        "role": get_execution_role(),
        "sagemaker_session": session,
        "name": name + suffix,
    }
    if kind == "PyTorchModel":
        return PyTorchModel(framework_version="2.3.0", py_version="py311", **given)
    if kind == "SKLearnModel":
        return SKLearnModel(framework_version="1.2-1", py_version="py3", **given)
    region = session.boto_region_name
    image = image_uris.retrieve("sklearn", region, version="1.2-1", instance_type="ml.m5.large")
    return Model(image_uri=image, predictor_cls=Predictor, **given)


with tempfile.TemporaryDirectory() as temporary:
    weights = packed_weights(Path(temporary))
    model = model_of(Path(temporary), 1)
    predictor = model.deploy(
        initial_instance_count=1,
        instance_type="ml.m5.large",
        endpoint_name=name,
        serializer=JSONSerializer(),
        deserializer=JSONDeserializer(),
    )
    first = predictor.predict([[1, 2, 3], [4, 5, 6]])
    other = model_of(Path(temporary), 2, "-2")
    other.create(instance_type="ml.m5.large")
predictor.update_endpoint(
    model_name=other.name, initial_instance_count=1, instance_type="ml.m5.large"
)
second = predictor.predict([[1, 2, 3], [4, 5, 6]])
predictor.delete_endpoint()
session.delete_endpoint_config(name)  # the first deployment's configuration
model.delete_model()
other.delete_model()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"first": first, "second": second}))

"""MultiDataModel of the SageMaker Python SDK v2: deploy, add models, list, predict, delete.

Run under `hostelry exec`.
"""

import io
import json
import tarfile
import tempfile
from pathlib import Path

from sagemaker import Session, get_execution_role, image_uris
from sagemaker.deserializers import JSONDeserializer
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer

CODE = """
import os
def model_fn(model_dir):
    return float(open(os.path.join(model_dir, "factor")).read())
def input_fn(body, content_type):
    return float(body)
def predict_fn(data, model):
    return [data * model]
"""


def archive(folder: Path, number: int) -> str:
    """A model that multiplies by `number`."""
    path = folder / f"times-{number}.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for name, text in (("factor", str(number)), ("code/inference.py", CODE)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))
    return str(path)


session = Session()
prefix = f"s3://{session.default_bucket()}/many-from-sdk2/"
many = MultiDataModel(
    name="many-from-sdk2",
    model_data_prefix=prefix,
    image_uri=image_uris.retrieve("sklearn", session.boto_region_name, version="1.2-1"),
    role=get_execution_role(),
    predictor_cls=Predictor,
    sagemaker_session=session,
)
predictor = many.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    serializer=CSVSerializer(),
    deserializer=JSONDeserializer(),
)
with tempfile.TemporaryDirectory() as folder:
    for number in (2, 3):
        source = archive(Path(folder), number)
        many.add_model(model_data_source=source, model_data_path=f"added/{Path(source).name}")
listed = sorted(many.list_models())
answers = [predictor.predict("7", target_model=name) for name in listed]
predictor.delete_endpoint()
many.delete_model()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"listed": listed, "answers": answers}))

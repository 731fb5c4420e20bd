"""Data capture with the SageMaker Python SDK v2: deploy with capture, read records, switch off.

Arguments: a model's archive, its image, and rows as JSON. Run under `hostelry exec`.
"""

import json
import sys
import time
from functools import partial

from sagemaker import Session, get_execution_role
from sagemaker.deserializers import CSVDeserializer
from sagemaker.model import Model
from sagemaker.model_monitor import DataCaptureConfig
from sagemaker.predictor import Predictor
from sagemaker.s3 import S3Downloader
from sagemaker.serializers import CSVSerializer

archive, image, text = sys.argv[1:]
rows, session = json.loads(text), Session()
session.wait_for_endpoint = partial(session.wait_for_endpoint, poll=1)  # by default 30 seconds
name = "sdk2-capture"
model = Model(
    image_uri=image,
    model_data=archive,
    role=get_execution_role(),
    name=name,
    predictor_cls=Predictor,
    sagemaker_session=session,
)
capture = DataCaptureConfig(enable_capture=True, sampling_percentage=100, sagemaker_session=session)
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    endpoint_name=name,
    serializer=CSVSerializer(),
    deserializer=CSVDeserializer(),
    data_capture_config=capture,
)
predicted = predictor.predict(rows)
folder = f"{capture.destination_s3_uri}/{name}"
deadline = time.monotonic() + 60
while not (files := S3Downloader.list(folder, sagemaker_session=session)):
    assert time.monotonic() < deadline, f"no object below {folder}"
    time.sleep(1)
lines = S3Downloader.read_file(files[0], sagemaker_session=session).splitlines()


def shown() -> dict[str, object]:
    """DescribeEndpoint's DataCaptureConfig."""
    found = session.sagemaker_client.describe_endpoint(EndpointName=name)
    return dict(found["DataCaptureConfig"])


before = shown()
predictor.disable_data_capture()
after = shown()
predictor.delete_endpoint()
model.delete_model()
print()  # in case the SDK's log has not ended its line
found = {"predicted": predicted, "lines": lines, "before": before, "after": after}
print(json.dumps(found))

"""A scikit-learn step before XGBoost, with the SageMaker Python SDK v2's PipelineModel.

Arguments: two model.tar.gz, two entry points, rows as JSON. Run under `hostelry exec`.
"""

import json
import sys
import uuid

from sagemaker import Session, get_execution_role
from sagemaker.deserializers import CSVDeserializer
from sagemaker.pipeline import PipelineModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer
from sagemaker.sklearn import SKLearnModel
from sagemaker.xgboost import XGBoostModel

prepare, trees, prepare_code, trees_code, text = sys.argv[1:]
session, unique_id, rows = Session(), uuid.uuid4().hex[:8], json.loads(text)
role, name = get_execution_role(), f"pipeline-{unique_id}"
prepared = SKLearnModel(
    model_data=session.upload_data(prepare, key_prefix=f"{name}/prepare"),
    role=role,
    entry_point=prepare_code,
    framework_version="1.2-1",
    py_version="py3",
    env={"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"},
    sagemaker_session=session,
)
predicted = XGBoostModel(
    model_data=session.upload_data(trees, key_prefix=f"{name}/trees"),
    role=role,
    entry_point=trees_code,
    framework_version="1.7-1",
    sagemaker_session=session,
)
pipeline = PipelineModel(
    models=[prepared, predicted], role=role, name=name, sagemaker_session=session,
    predictor_cls=Predictor,
)  # fmt: skip
predictor = pipeline.deploy(
    initial_instance_count=1, instance_type="ml.m5.large", endpoint_name=name
)
predictor.serializer, predictor.deserializer = CSVSerializer(), CSVDeserializer()
answer = predictor.predict(rows)
predictor.delete_endpoint()
pipeline.delete_model()
print()  # in case the SDK's log has not ended its line
print(json.dumps({"answer": [[float(it) for it in row] for row in answer]}))

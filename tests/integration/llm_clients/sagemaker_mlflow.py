"""Deploys a model by MLflow's SageMaker client, asks and deletes it, and prints the results."""

import json
import sys
import tempfile

import mlflow.pyfunc
import pandas
from mlflow.deployments import get_deploy_client

IMAGE, NAME, ROLE = sys.argv[1], "mlflow-doubles", sys.argv[2]


class Doubles(mlflow.pyfunc.PythonModel):
    """Doubles each value in its column x."""

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """A list of the doubled values."""
        return [2 * it for it in model_input["x"].tolist()]


def states() -> list[str]:
    """The states of the deployments in the client's list."""
    return [it["EndpointStatus"] for it in client.list_deployments()]


client = get_deploy_client("sagemaker:/us-east-1")
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/model"
    mlflow.pyfunc.save_model(path, python_model=Doubles(), pip_requirements=[])
    config = {"image_url": IMAGE, "instance_type": "ml.m5.large", "timeout_seconds": 180}
    config |= {"execution_role_arn": ROLE}
    client.create_deployment(NAME, path, flavor="python_function", config=config)
    asked = client.predict(deployment_name=NAME, inputs=pandas.DataFrame({"x": [1, 20]}))
    update = {**config, "mode": "replace"}
    client.update_deployment(NAME, path, flavor="python_function", config=update)
    again = client.predict(deployment_name=NAME, inputs=pandas.DataFrame({"x": [3]}))
listed = states()
client.delete_deployment(NAME)
found = {"asked": asked.get_predictions().iloc[:, 0].tolist(), "listed": listed}
print(json.dumps({**found, "again": again.get_predictions().iloc[:, 0].tolist()}))

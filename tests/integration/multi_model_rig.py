"""Multi-model endpoints on a separate platform. Their server is not Hostelry's own."""

import io
import json
import os
import signal
import tarfile
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError
from tests.integration.platform import Platform, until

ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
BUCKET = "others"
# A server that multiplies by the number in the model.
MANY = """
import os
import signal
def model_fn(model_dir):
    return float(open(os.path.join(model_dir, "factor")).read())
def input_fn(body, content_type):
    if body == b"die":
        os._exit(3)
    return float(body)
def predict_fn(data, model):
    return [data * model]
"""


def archive(files: Mapping[str, bytes | str]) -> bytes:
    """A tar.gz of these files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return content.getvalue()


class Models:
    """An endpoint with many models: its objects, its requests, and the platform's reports."""

    def __init__(self, platform: Platform, name: str, image: str, **environment: str) -> None:
        self.platform, self.name = platform, name
        self.s3 = platform.boto3("s3")
        self.runtime = platform.boto3(
            "sagemaker-runtime", retries={"total_max_attempts": 1}, read_timeout=90
        )
        sagemaker = platform.boto3("sagemaker")
        if BUCKET not in [it["Name"] for it in self.s3.list_buckets()["Buckets"]]:
            self.s3.create_bucket(Bucket=BUCKET)
        sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": image,
                "Mode": "MultiModel",
                "ModelDataUrl": f"s3://{BUCKET}/{name}/",
                "Environment": environment,
            },
        )
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": "ml.t2.medium",
            "InitialInstanceCount": 1,
        }
        sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

        def settled() -> dict[str, Any] | None:
            found: dict[str, Any] = platform.looker().describe_endpoint(EndpointName=name)
            return found if found["EndpointStatus"] in ("InService", "Failed") else None

        self.described = until(settled, f"{name} is InService or Failed", 90)

    @property
    def serving(self) -> "Models":
        """The endpoint. Fails unless it is InService."""
        assert self.described["EndpointStatus"] == "InService", self.described
        return self

    def put(self, target: str, files: Mapping[str, bytes | str]) -> str:
        """Put the archive of a model, and return its TargetModel."""
        self.s3.put_object(Bucket=BUCKET, Key=f"{self.name}/{target}", Body=archive(files))
        return target

    def ask(self, target: str, body: bytes | str, kind: str = "application/json") -> Any:
        """The JSON of the answer to a request."""
        answer = self.runtime.invoke_endpoint(
            EndpointName=self.name, TargetModel=target, Body=body, ContentType=kind
        )
        return json.loads(answer["Body"].read())

    def refusal(
        self, target: str, body: bytes | str, kind: str = "application/json"
    ) -> dict[str, Any]:
        """The error for a request: its code, its message, and the container's status."""
        try:
            answer = self.ask(target, body, kind)
        except ClientError as error:
            response = error.response
            status = response.get("OriginalStatusCode")
            return {**response["Error"], "status": status}
        raise AssertionError(f"{target} answered {answer}")

    def eventually(self, target: str, body: bytes | str, kind: str = "application/json") -> Any:
        """Return the answer. Retries like an AWS client until it exists."""

        def answer() -> Any:
            try:
                return [self.ask(target, body, kind)]
            except ClientError as error:
                if error.response["Error"]["Code"] in ("ServiceUnavailable", "ModelError"):
                    return None
                raise

        return until(answer, f"{target} answers", 60)[0]

    def known(self) -> dict[str, Any]:
        """The models that the copy knows, by target."""
        return {it["target"]: it for it in self._account()["models"]}

    def stuck(self) -> dict[str, str]:
        """The targets of models whose unloading got no answer, and the reason."""
        return {it["target"]: it["reason"] for it in self._account()["stuck"]}

    def _account(self) -> dict[str, Any]:
        shown = self.platform.cli("explain", "--endpoint", self.name, "--json").stdout
        (models,) = json.loads(shown)["models"].values()
        found: dict[str, Any] = models
        return found

    def in_memory(self) -> set[str]:
        """The targets of the loaded models."""
        return {target for target, it in self.known().items() if it["loaded"]}

    def kill_agent(self) -> None:
        """Kill the agent of the endpoint's copy. The next agent adopts the copy's server."""
        state = json.loads(self.platform.cli("status", "--json").stdout)["state"]
        (copy,) = [
            copy
            for endpoint in state["endpoints"]
            if endpoint["name"] == self.name
            for copy in endpoint["copies"]
        ]
        record = self.platform.home.instances / copy["instance"] / "agent.json"
        os.kill(json.loads(record.read_bytes())["process"]["pid"], signal.SIGKILL)

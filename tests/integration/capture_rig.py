"""A platform whose endpoints capture data. Their echo server obeys custom attributes."""

import contextlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.integration.drill import ROLE
from tests.integration.platform import Platform, until

ROOT = Path(__file__).resolve().parents[2]
RUN = (
    "import os, runpy, sys; "
    f"sys.path.insert(0, {str(ROOT)!r}); "
    "sys.argv = ['echo', '--port', os.environ['SAGEMAKER_BIND_TO_PORT']]; "
    "runpy.run_module('benchmarks.echo_model', run_name='__main__')"
)
ECHO_RULE = f"""
[[image]]
pattern = "mirror:*"
command = ["{sys.executable}", "-c", "{RUN}"]
[image.probe]
content_type = "application/json"
body = '{{"probe": true}}'
"""
KEY = re.compile(
    r"/(AllTraffic|Shadow)/\d{4}/\d\d/\d\d/\d\d/[0-5]\d-[0-5]\d-\d{3}-[0-9a-f-]{36}\.jsonl"
)
TYPES = {"CsvContentTypes": ["text/csv"], "JsonContentTypes": ["application/json"]}


def capture_of(*modes: str, percent: int = 100, **more: Any) -> dict[str, Any]:
    """A DataCaptureConfig for the bucket "seen"."""
    return {
        "EnableCapture": True,
        "InitialSamplingPercentage": percent,
        "DestinationS3Uri": "s3://seen/here/",
        "CaptureOptions": [{"CaptureMode": it} for it in modes or ("Input", "Output")],
        "CaptureContentTypeHeader": TYPES,
        **more,
    }


class CapturedEndpoints:
    """Endpoints with one model, and the objects with their captured requests."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        # Many attempts, because tests kill the object store.
        self.s3 = platform.boto3("s3", retries={"max_attempts": 10, "mode": "standard"})
        self.sagemaker = platform.boto3("sagemaker")
        self.runtime = platform.boto3("sagemaker-runtime", max_pool_connections=1)
        self.s3.create_bucket(Bucket="seen")
        self.sagemaker.create_model(
            ModelName="mirror", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "mirror:1"}
        )

    def config(
        self,
        name: str,
        capture: Mapping[str, Any] | None,
        model: str = "mirror",
        *,
        has_shadow: bool = False,
        **more: Any,
    ) -> None:
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": model,
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
        if capture is not None:
            more["DataCaptureConfig"] = capture
        if has_shadow:
            more["ShadowProductionVariants"] = [{**variant, "VariantName": "Shadow"}]
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant], **more
        )

    def deploy(
        self, captures: Mapping[str, Mapping[str, Any] | None], model: str = "mirror"
    ) -> None:
        """Deploy endpoints with these names, and wait until all are InService."""
        for name, capture in captures.items():
            self.config(name, capture, model)
            self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        for name in captures:
            self.in_service(name)

    def in_service(self, name: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.platform.looker().describe_endpoint(EndpointName=name)
            assert found["EndpointStatus"] != "Failed", found["FailureReason"]
            return found if found["EndpointStatus"] == "InService" else None

        found: dict[str, Any] = until(look, f"{name} is InService", 90)
        return found

    def update(self, name: str, config: str, **more: Any) -> dict[str, Any]:
        self.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=config, **more)
        return self.in_service(name)

    def invoke(self, name: str, body: bytes, kind: str = "application/json", **more: str) -> bytes:
        found = self.runtime.invoke_endpoint(EndpointName=name, ContentType=kind, Body=body, **more)
        answer: bytes = found["Body"].read()
        return answer

    def records(self, name: str, bucket: str = "seen", variant: str = "") -> list[dict[str, Any]]:
        """The records of an endpoint that have been uploaded so far, by the objects' keys."""
        prefix = f"here/{name}/{variant}"
        found = self.s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        records: list[dict[str, Any]] = []
        for key in sorted(it["Key"] for it in found):
            assert KEY.fullmatch(key.removeprefix(f"here/{name}")), key
            text = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
            records += map(json.loads, text.splitlines())
        return records

    def all_of(self, name: str, number: int, bucket: str = "seen") -> list[dict[str, Any]]:
        """The records of an endpoint, once there are `number` records."""
        records: list[dict[str, Any]] = []

        def enough() -> bool:
            records[:] = self.records(name, bucket)
            return len(records) >= number

        with contextlib.suppress(AssertionError):  # the next assertion has a better message
            until(enough, f"{number} records of {name}", 60)
        assert len(records) == number, records
        return records

    def upload_cause(self, name: str) -> str:
        """Why uploads of an endpoint fail now, as control reports it. Empty if they succeed."""
        answer = httpx.get(
            f"{self.platform.config.control_url}/internal/state",
            headers={"X-Hostelry-Key": self.platform.credentials.internal_key},
            trust_env=False,
        )
        (found,) = [it for it in answer.json()["endpoints"] if it["name"] == name]
        causes = [it["upload_cause"] for it in found["capture"]["variants"]]
        return "".join(it for it in causes if it)

    def status(self, name: str) -> str:
        """The lines about an endpoint's capture in `hostelry status`."""
        text = self.platform.cli("status").stdout
        found = text.partition(f"endpoint {name} ")[2].partition("\n\n")[0].splitlines()
        first = next(i for i, line in enumerate(found) if line.startswith("  capture "))
        last = next(i for i, line in enumerate(found) if line.startswith("  instance "))
        return "\n".join(found[first:last])


def datas(record: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Encoding and data of each captured side."""
    return {side: (it["encoding"], it["data"]) for side, it in record["captureData"].items()}

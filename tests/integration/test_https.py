"""A platform with --https-cert: boto3 unmodified by `hostelry env`, and the commands."""

import os
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.https_rig import HostAuthority
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until

from hostelry.server.home import Home

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAM = """
import boto3

s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
runtime = boto3.client("sagemaker-runtime")
s3.create_bucket(Bucket="over-tls")
s3.put_object(Bucket="over-tls", Key="k", Body=bytes(9_000_000))
assert len(s3.get_object(Bucket="over-tls", Key="k")["Body"].read()) == 9_000_000
role = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
sagemaker.create_model(
    ModelName="m", ExecutionRoleArn=role, PrimaryContainer={"Image": "echo:1"}
)
variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.large"}
sagemaker.create_endpoint_config(
    EndpointConfigName="c", ProductionVariants=[variant | {"InitialInstanceCount": 1}]
)
sagemaker.create_endpoint(EndpointName="ep", EndpointConfigName="c")
sagemaker.get_waiter("endpoint_in_service").wait(
    EndpointName="ep", WaiterConfig={"Delay": 1, "MaxAttempts": 120}
)
"""
INVOKE = """
import boto3

runtime = boto3.client("sagemaker-runtime")
sent = bytes(range(256)) * 8_000
assert runtime.invoke_endpoint(EndpointName="ep", Body=sent)["Body"].read() == sent
answer = runtime.invoke_endpoint_with_response_stream(EndpointName="ep", Body=b"hello")
print(b"".join(it["PayloadPart"]["Bytes"] for it in answer["Body"]))
"""


def run(program: str, environment: dict[str, str]) -> str:
    """What a program prints that ends well."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shows_another(port: int, before: str) -> bool:
    """Whether the server of the port shows a certificate that is not `before`."""
    return ssl.get_server_certificate(("localhost", port)) != before


def test_clients_come_by_https_and_the_platforms_own_programs_as_ever(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    authority = HostAuthority(tmp_path)
    certificate, key = authority.pair("host", "localhost")
    files = ("--https-cert", str(certificate), "--https-key", str(key))
    flags = (*files, "--https-ca", str(authority.ca), "--gateway-workers", "1")
    with Platform(home.root, *flags) as platform:
        variables = platform.env()
        url = f"https://localhost:{platform.port}"
        assert variables["AWS_ENDPOINT_URL"] == url
        assert variables["AWS_ENDPOINT_URL_S3"] == f"https://localhost:{platform.s3_port}"
        run(PROGRAM + INVOKE, variables)
        assert url in platform.cli("status").stdout
        platform.exec([sys.executable, "-c", INVOKE])

        trusting = ssl.create_default_context(cafile=variables["AWS_CA_BUNDLE"])
        with httpx.Client(base_url=url, verify=trusting, trust_env=False) as browser:
            assert browser.get("/health").status_code == 200
            assert browser.get("/console").status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/health", trust_env=False)
        plain = httpx.get(f"{platform.config.gateway_url}/health", trust_env=False)
        assert plain.status_code == 200, "a program of this machine"

        first = ssl.get_server_certificate(("localhost", platform.port))
        for path, new in zip(
            (key, certificate), authority.pair("new", "localhost")[::-1], strict=True
        ):
            os.replace(new, path)
        for port in (platform.port, platform.s3_port):
            until(partial(shows_another, port, first), "the new certificate is shown")
        run(INVOKE, variables)

"""Hosts with --https-cert: boto3 unmodified by `hostelry env`, and the commands."""

import os
import socket
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.https_rig import HostAuthority
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.joined_host import JoinedHost
from tests.integration.platform import Platform, until

from hostelry.base.ports import free_port
from hostelry.home.home import Home

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
assert boto3.client("s3").head_object(Bucket="over-tls", Key="k")["ContentLength"] == 9_000_000
answer = runtime.invoke_endpoint_with_response_stream(EndpointName="ep", Body=b"hello")
print(b"".join(it["PayloadPart"]["Bytes"] for it in answer["Body"]))
"""


def run(program: str, environment: dict[str, str]) -> str:
    """Run a program, which must succeed, and return its output."""
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


def shown_by(host: str, port: int) -> str:
    """The certificate that the server shows."""
    return ssl.get_server_certificate((host, port))


def replaced(files: tuple[Path, Path], new: tuple[Path, Path]) -> None:
    """Rename the new files into the others' places, the key first."""
    for before, after in zip(files[::-1], new[::-1], strict=True):
        os.replace(after, before)


def outward_address() -> str | None:
    """This machine's address on a network, or None without a network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def from_elsewhere(url: str, trusting: ssl.SSLContext, source: str) -> int:
    """The status of /health for a peer whose address is neither loopback's nor the server's."""
    transport = httpx.HTTPTransport(verify=trusting, local_address=source)
    with httpx.Client(transport=transport, trust_env=False) as client:
        return client.get(f"{url}/health").status_code


def test_clients_come_by_https_and_the_platforms_own_programs_as_ever(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    authority = HostAuthority(tmp_path)
    certificate, key = authority.pair("host", "localhost")
    files = ("--https-cert", str(certificate), "--https-key", str(key))
    flags = (*files, "--https-ca", str(authority.ca), "--gateway-workers", "1")
    peers = ("--cluster-host", "127.0.0.1", "--cluster-port", str(free_port()))
    with Platform(home.root, *flags, *peers) as platform:
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
        joined_gateways_have_their_own(platform, authority)

        first = shown_by("localhost", platform.port)
        replaced((certificate, key), authority.pair("new", "localhost"))
        for port in (platform.port, platform.s3_port):
            changed = partial(lambda it: shown_by("localhost", it) != first, port)
            until(changed, "the new certificate is shown")
        run(INVOKE, variables)


def joined_gateways_have_their_own(first: Platform, authority: HostAuthority) -> None:
    """A separate certificate. With it clients use both the gateways and the S3 port."""
    address = "127.0.0.2"
    pair = authority.pair("gateways", address)
    files = ("--https-cert", str(pair[0]), "--https-key", str(pair[1]))
    flags = (*files, "--https-ca", str(authority.ca), "--gateway-workers", "1")
    with JoinedHost(first, "gateway", *flags, address=address) as gateways:
        variables = gateways.env()
        url = f"https://{address}:{gateways.port}"
        assert variables["AWS_ENDPOINT_URL"] == url
        assert variables["AWS_ENDPOINT_URL_S3"] == first.env()["AWS_ENDPOINT_URL_S3"]
        run(INVOKE, variables)
        gateways.exec([sys.executable, "-c", INVOKE])
        assert url in gateways.cli("status").stdout

        trusting = ssl.create_default_context(cafile=variables["AWS_CA_BUNDLE"])
        assert httpx.get(f"{url}/health", verify=trusting, trust_env=False).status_code == 200
        assert httpx.get(f"{gateways.config.gateway_url}/health", trust_env=False).is_success
        if (source := outward_address()) is not None:
            assert from_elsewhere(url, trusting, source) == 200
            with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
                from_elsewhere(gateways.config.gateway_url, trusting, source)

        gateways.back("up", gateways.kill("up"))
        before = shown_by(address, gateways.port)
        replaced(pair, authority.pair("newer", address))
        until(lambda: shown_by(address, gateways.port) != before, "the new certificate is shown")
        gateways.back("gateway-1", gateways.kill("gateway-1"))
        until(lambda: httpx.get(f"{url}/health", verify=trusting).is_success, "it serves again")
        run(INVOKE, variables)

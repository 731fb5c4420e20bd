"""Requests to a model server and to the gateway, and a load of them from a separate process."""

import subprocess
import sys

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials

from benchmarks.load import Load, Measured
from benchmarks.stack import ENDPOINT_NAME, Stack
from hostelry.loadtest.requests import message

BYTES = "application/octet-stream"
JSON = "application/json"


def run_load(load: Load) -> Measured:
    """Run the load in a separate process, so that making it does not slow the measured server."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=msgspec.json.encode(load),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Measured)


def direct_request(body: bytes, headers: dict[str, str]) -> bytes:
    """An invocation as the gateway would send it to a copy."""
    given = {"Host": "localhost", "Content-Type": BYTES, **headers}
    return message("/invocations", given, body)


def signed_request(
    stack: Stack,
    action: str,
    body: bytes,
    headers: dict[str, str],
    endpoint: str = ENDPOINT_NAME,
) -> bytes:
    """An invocation as botocore would send it to the gateway."""
    path = f"/endpoints/{endpoint}/{action}"
    url = f"http://127.0.0.1:{stack.gateway_port}{path}"
    request = AWSRequest("POST", url, {"Content-Type": BYTES, **headers}, body)
    keys = stack.credentials
    signer = SigningCredentials(keys.access_key_id, keys.secret_access_key)
    SigV4Auth(signer, "sagemaker", keys.region).add_auth(request)
    given = {"Host": f"127.0.0.1:{stack.gateway_port}", **dict(request.headers.items())}
    return message(path, given, body)

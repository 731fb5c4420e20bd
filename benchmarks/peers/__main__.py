"""``python -m benchmarks.peers install [NAME ...]`` and ``python -m benchmarks.peers list``."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.peers.contestant import PeerMissingError
from benchmarks.peers.installed import (
    GATEWAY_PACKAGES,
    aiperf_program,
    gateway_environment,
    install_aiperf,
    install_gateway,
    install_llama,
    install_vllm,
    llama_binaries,
    vllm_environment,
)

INSTALL: dict[str, Callable[[], None]] = {
    "vllm": install_vllm,
    "llama": install_llama,
    "aiperf": install_aiperf,
    **{name: partial(install_gateway, name) for name in GATEWAY_PACKAGES},
}
FIND: dict[str, Callable[[], Path]] = {
    "vllm": vllm_environment,
    "llama": llama_binaries,
    "aiperf": aiperf_program,
    **{name: partial(gateway_environment, name) for name in GATEWAY_PACKAGES},
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("verb", choices=("install", "list"))
    parser.add_argument("names", nargs="*", choices=[*INSTALL, []], help="default: all")
    arguments = parser.parse_args()
    for name in arguments.names or INSTALL:
        if arguments.verb == "install":
            INSTALL[name]()
        try:
            print(f"{name}: {FIND[name]()}")
        except PeerMissingError as missing:
            print(f"{name}: missing; {missing}")


if __name__ == "__main__":
    main()

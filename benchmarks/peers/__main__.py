"""``python -m benchmarks.peers install [vllm] [llama]`` and ``python -m benchmarks.peers list``."""

import argparse

from benchmarks.peers.contestant import PeerMissingError
from benchmarks.peers.installed import (
    install_llama,
    install_vllm,
    llama_binaries,
    vllm_environment,
)

INSTALL = {"vllm": install_vllm, "llama": install_llama}
FIND = {"vllm": vllm_environment, "llama": llama_binaries}


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

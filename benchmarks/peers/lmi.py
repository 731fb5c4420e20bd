"""Our engine behind its LLM server, loaded over HTTP like its peers."""

import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.peers.completions import HttpBatches, openai_body
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.served import Launch, start_server
from hostelry.base.ports import free_port

BASE = "base"
PORT = "SAGEMAKER_BIND_TO_PORT"
CONFIGURATION = ("OPTION_", "HF_", "SERVING_", "SAGEMAKER_", "HOSTELRY_")


def start_lmi(
    name: str,
    model: Path,
    adapters: dict[str, Path],
    scratch: Path,
    num_threads: int,
    rank: int,
    options: Mapping[str, str] | None = None,
) -> Contestant:
    """The server over a folder of links to `model` and `adapters`, with more `options`."""
    folder = scratch / f"{name.replace(' ', '-')}-model"
    link_folder(model, folder)
    (folder / "adapters").mkdir()
    for adapter, source in adapters.items():
        shutil.copytree(source, folder / "adapters" / adapter, copy_function=link_or_copy)
    options = options or {}
    port = int(options.get(PORT, free_port()))
    clean = {key: it for key, it in os.environ.items() if not key.startswith(CONFIGURATION)}
    settings = {
        PORT: str(port),
        "HOSTELRY_MODEL_DIR": str(folder),
        "HOSTELRY_CPUS": str(num_threads),
        "OPTION_SERVED_MODEL_NAME": BASE,
        "OPTION_ENABLE_LORA": "true" if adapters else "false",
        "OPTION_MAX_LORA_RANK": str(rank),
        **options,
    }
    return start_server(
        Launch(
            name=name,
            command=[sys.executable, "-m", "hostelry.containers.lmi"],
            env={**clean, **settings},
            log=scratch / f"{folder.name}.log",
            health_path="/ping",
            batches=HttpBatches(port=port, body_of=partial(openai_body, base=BASE)),
        )
    )


def link_or_copy(source: str, target: str) -> None:
    """Share the file's bytes if both folders are on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def link_folder(model: Path, folder: Path) -> None:
    """Make `folder` with a link to each file of `model`."""
    folder.mkdir(parents=True)
    for file in model.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file.absolute())

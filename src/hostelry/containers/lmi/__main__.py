"""Run the LLM model server: `python -m hostelry.containers.lmi`.

The composition root: the only module of this server that reads the environment.
"""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.guards import take_key
from hostelry.base.logging import configure_logging
from hostelry.containers.http.listening import listen
from hostelry.containers.lmi.engine.child import EngineSide, ForkedEngine, fork_engine
from hostelry.containers.lmi.http.app import show_request_ids
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.lifecycle import serve
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig, resolve_config
from hostelry.containers.lmi.settings.model_source import nested_model
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.options import as_lmi, as_vllm

DEFAULT_MODEL_DIR = "/opt/ml/model"
DEFAULT_PORT = 8080
DEFAULT_HOST = "127.0.0.1"
ENGINE_MODULE = "hostelry.containers.lmi.engine.process"
MODEL_VARIABLES = ("OPTION_MODEL_ID", "OPTION_MODEL", "SM_VLLM_MODEL", "HF_MODEL_ID")
EXIT_FAILURE = 1
EXIT_CONFIGURATION = 2

LOG = logging.getLogger("hostelry.containers.lmi")


def arguments(argv: Sequence[str], env: Mapping[str, str]) -> argparse.Namespace:
    """Flags, with the container contract's variables as their defaults."""
    parser = argparse.ArgumentParser(
        prog="python -m hostelry.containers.lmi",
        description="Serve one LLM and its LoRA adapters behind LMI's container contract: "
        "GET /ping, POST /invocations, OpenAI's /v1 routes and the /adapters routes.",
        epilog="Options of the model come from serving.properties in the model folder, OPTION_*, "
        "SM_VLLM_* and HF_* variables, as in LMI and vLLM: docs/llm-options.md.",
    )
    parser.add_argument(
        "--port",
        default=env.get("SAGEMAKER_BIND_TO_PORT") or str(DEFAULT_PORT),
        help="port to listen on (SAGEMAKER_BIND_TO_PORT; default 8080)",
    )
    parser.add_argument(
        "--host",
        default=env.get("SAGEMAKER_BIND_HOST") or DEFAULT_HOST,
        help="address to listen on (SAGEMAKER_BIND_HOST; default 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--model-dir",
        type=Path,
        default=Path(env.get("HOSTELRY_MODEL_DIR") or DEFAULT_MODEL_DIR),
        help="the model folder (HOSTELRY_MODEL_DIR; default /opt/ml/model)",
    )
    parser.add_argument(
        "--tgi",
        action="store_true",
        help="be a Text Generation Inference image: its variables, its answers",
    )
    parser.add_argument(
        "--vllm",
        action="store_true",
        help="be a vLLM image: its names and defaults, and its answers on /invocations, too",
    )
    given = parser.parse_args(argv)
    if not given.port.isdigit() or not 0 < int(given.port) < 65536:
        raise ConfigurationError(f"the port is {given.port!r}; it must be 1 to 65535")
    return given


def read_config(
    env: Mapping[str, str], model_dir: Path, image: ImageKind = ImageKind.LMI
) -> LmiConfig:
    """The configuration of the model in `model_dir`. Raises ConfigurationError."""
    if not model_dir.is_dir() and not any(env.get(it) for it in MODEL_VARIABLES):
        raise ConfigurationError(
            f"the model folder {model_dir} does not exist; name it with --model-dir or "
            "HOSTELRY_MODEL_DIR"
        )
    outer = model_dir
    if model_dir.is_dir():
        model_dir = nested_model(model_dir)
    if model_dir != outer:
        LOG.info("the model is in the folder %s of its archive", model_dir.name)
    listing = [path.name for path in model_dir.iterdir()] if model_dir.is_dir() else []
    if image is ImageKind.TGI:
        env = as_lmi(env)
    elif image is ImageKind.VLLM:
        env = as_vllm(env, listing)
    properties = model_dir / "serving.properties"
    try:
        text = properties.read_text(encoding="utf-8") if properties.is_file() else ""
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{properties} is not UTF-8 text: {error}") from error
    return resolve_config(env, text, listing, model_dir, len(os.sched_getaffinity(0)), image)


def image_kind(given: argparse.Namespace) -> ImageKind:
    """The kind of image that the flags name."""
    if given.tgi and given.vllm:
        raise ConfigurationError("--tgi and --vllm are two kinds of image; give one of them")
    return ImageKind.TGI if given.tgi else ImageKind.VLLM if given.vllm else ImageKind.LMI


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Returns 0 after a drain, 1 after a failure, 2 if misconfigured."""
    configure_logging("lmi")
    show_request_ids(logging.getLogger())
    key = take_key(os.environ)
    try:
        given = arguments(sys.argv[1:] if argv is None else argv, os.environ)
        config = read_config(os.environ, given.model_dir, image_kind(given))
        engine = forked_engine()
        if isinstance(engine, EngineSide):
            return run_engine(engine)
        listener = listen(given.host, int(given.port))
    except (ConfigurationError, TerminalError) as error:
        LOG.error("%s", error)  # noqa: TRY400 - the message needs no traceback
        return EXIT_CONFIGURATION
    for warning in config.terms.warnings:
        LOG.warning("%s", warning)
    server = LmiServer(config=config, clock=SystemClock(), environment=dict(os.environ))
    failure = uvloop.run(serve(server, listener, engine, key))
    if failure:
        # On one last line, because a copy's FailureReason has the last lines of its log.
        LOG.error("the server ends: %s", " ".join(failure.split()))
    return EXIT_FAILURE if failure else 0


def forked_engine() -> ForkedEngine | EngineSide | None:
    """The engine process, forked from this process if the engine is already imported.

    A copy that was forked from a warm interpreter has imported the engine. A server that was
    started as a program never imports it.
    """
    return fork_engine() if ENGINE_MODULE in sys.modules else None


def run_engine(here: EngineSide) -> int:
    """Run as the engine process. Returns the exit status."""
    status: int = sys.modules[ENGINE_MODULE].run(here.stream, here.parent)
    return status


if __name__ == "__main__":
    raise SystemExit(main())

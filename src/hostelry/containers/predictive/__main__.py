"""The framework model server: ``python -m hostelry.containers.predictive --framework NAME``."""

import argparse
import logging
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import uvloop

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.errors import TerminalError
from hostelry.base.guards import take_key
from hostelry.base.logging import configure_logging
from hostelry.containers.http.listening import listen
from hostelry.containers.http.serving_app import (
    RefusedRequestError,
    ServingApp,
    run_app,
    run_server,
    serve_http,
)
from hostelry.containers.predictive.app import MultiModelApp, PredictiveApp
from hostelry.containers.predictive.config import (
    MODULES,
    MULTI_MODEL_MODULES,
    TOOLKIT,
    PredictiveConfig,
    find_interpreter,
    resolve,
)
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_table import ModelTable
from hostelry.containers.predictive.requirements import FILE, provide_packages
from hostelry.containers.predictive.worker_pool import BatchLimits, PoolLimits, WorkerPool
from hostelry.containers.predictive.worker_process import ModelPlaces
from hostelry.containers.predictive.zygote_process import (
    ZygoteProcess,
    build_worker_environment,
    take_lent_socket,
)
from hostelry.containers.variables import OWN_MODEL_DIR

LOAD_S = 3600.0  # longer than the platform's limit for a start

LOG = logging.getLogger("hostelry.containers.predictive")


def parse_arguments(argv: Sequence[str], env: Mapping[str, str]) -> argparse.Namespace:
    """The command line, with the variables as defaults. Raises TerminalError for a bad port."""
    parser = argparse.ArgumentParser(prog="hostelry.containers.predictive", description=__doc__)
    parser.add_argument(
        "--framework", required=True, help=f"the model's framework: {', '.join(sorted(MODULES))}"
    )
    parser.add_argument("--runtime", help="the installed runtime (hostelry runtimes list)")
    parser.add_argument("--python", help="an interpreter, in place of a runtime")
    parser.add_argument(
        "--model-dir",
        type=Path,
        default=Path(env.get("HOSTELRY_MODEL_DIR") or OWN_MODEL_DIR),
        help=f"the model folder (HOSTELRY_MODEL_DIR; default {OWN_MODEL_DIR})",
    )
    parser.add_argument(
        "--port",
        default=env.get("SAGEMAKER_BIND_TO_PORT") or "8080",
        help="port to listen on (SAGEMAKER_BIND_TO_PORT; default 8080)",
    )
    parser.add_argument(
        "--host",
        default=env.get("SAGEMAKER_BIND_HOST") or "127.0.0.1",
        help="address to listen on (SAGEMAKER_BIND_HOST; default 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--multi-model",
        action="store_true",
        default=env.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true",
        help="start without a model; POST /models loads models (SAGEMAKER_MULTI_MODEL=true)",
    )
    given = parser.parse_args(argv)
    if not given.port.isdigit() or not 0 < int(given.port) < 65536:
        raise TerminalError(f"the port is {given.port!r}; it must be 1 to 65535")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal. Returns the exit status (see `run_server`)."""
    configure_logging("predictive")
    key, lent = take_key(os.environ), take_lent_socket(os.environ)
    return run_server(partial(start, sys.argv[1:] if argv is None else argv, key, lent))


def start(argv: Sequence[str], key: str | None, lent: socket.socket | None) -> str | None:
    """Serve as the arguments say. Returns the reason of a failure. Raises TerminalError."""
    given = parse_arguments(argv, os.environ)
    python = find_interpreter(os.environ, given.runtime, given.python)
    cpus = len(os.sched_getaffinity(0))
    model_dir = given.model_dir.absolute()
    config = resolve(os.environ, given.framework, python, model_dir, cpus, given.multi_model)
    with provide_packages(config.code_dir, python, os.environ) as packages:
        if lent is not None and (packages is not None or config.threads_per_worker > 1):
            lent.close()  # it imported the framework without these packages, for one thread
            lent = None
        listener = listen(given.host, int(given.port))
        return uvloop.run(serve(config, listener, key, packages, lent))


async def serve(
    config: PredictiveConfig,
    listener: socket.socket,
    key: str | None,
    packages: Path | None,
    lent: socket.socket | None,
) -> str | None:
    """Run until SIGTERM or SIGINT. Returns the reason if the server fails before.

    `packages` is the folder of the code's packages. `lent` is the socket to a process of the agent
    that has imported the framework.
    """
    metrics, clock = PredictiveMetrics(), MonotonicClock()
    environment = build_worker_environment(
        os.environ, config.python, config.model_dir, config.threads_per_worker
    )
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    modules = MULTI_MODEL_MODULES.get(config.framework, ()) if config.multi_model else ()
    zygote = ZygoteProcess(config.python, MODULES[config.framework], environment, TOOLKIT + modules)
    served: WorkerPool | ModelTable
    if config.multi_model:
        served = table = build_table(config, zygote, clock, metrics)
        limit_s = config.predict_timeout_s
        app: ServingApp = MultiModelApp(table, config.max_request_bytes, limit_s, clock, metrics)
    else:
        served = build_pool(config, zygote, config.model_dir, clock, metrics)
        num_places = config.num_workers * config.batch_size
        app = PredictiveApp(served, config.max_request_bytes, clock, metrics, num_places)

    async def load() -> None:
        await zygote.start(lent)
        await served.start()
        LOG.info("ready: %d workers, %s", len(served.pids), dict(zygote.versions))

    async with serve_http(app, listener, key):
        try:
            return await run_app(app, load(), zygote.wait_for_end)
        finally:
            await served.close()
            await zygote.close()


def build_table(
    config: PredictiveConfig, zygote: ZygoteProcess, clock: Clock, metrics: PredictiveMetrics
) -> ModelTable:
    """An empty table, with the process's limit of open files raised.

    Each model has one socket per worker.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def build(folder: Path) -> WorkerPool:
        return build_pool(config, zygote, folder, clock, metrics)

    return ModelTable(zygote, build, config.memory_bytes, clock, metrics)


def build_pool(
    config: PredictiveConfig,
    zygote: ZygoteProcess,
    folder: Path,
    clock: Clock,
    metrics: PredictiveMetrics,
) -> WorkerPool:
    """The workers of the model in `folder`. Raises RefusedRequestError."""
    limits = PoolLimits(
        num_workers=config.num_workers,
        max_queued=config.max_queued,
        predict_timeout_s=config.predict_timeout_s,
        load_timeout_s=LOAD_S,
        batch=BatchLimits(size=config.batch_size, delay_s=config.batch_delay_s),
    )
    return WorkerPool(zygote, find_places(config, folder), limits, clock, metrics)


def find_places(config: PredictiveConfig, folder: Path) -> ModelPlaces:
    """The folders that a worker loads. In a multi-model server the model's own code comes first.

    Raises RefusedRequestError if a model of a multi-model server has requirements.
    """
    if not config.multi_model:
        return ModelPlaces(
            model_dir=str(folder),
            code_dir=str(config.code_dir),
            framework=config.framework,
            environment={},
        )
    own = folder / "code"
    if (own / FILE).is_file():
        raise RefusedRequestError(
            f"the model has code/{FILE}, which is not installed for one of many models; name its "
            "packages in that of SAGEMAKER_SUBMIT_DIRECTORY, which all of them share",
            400,
        )
    return ModelPlaces(
        model_dir=str(folder),
        code_dir=str(own if own.is_dir() else config.code_dir),
        framework=config.framework,
        environment={"SM_MODEL_DIR": str(folder), "SAGEMAKER_MULTI_MODEL": "true"},
    )


if __name__ == "__main__":
    raise SystemExit(main())

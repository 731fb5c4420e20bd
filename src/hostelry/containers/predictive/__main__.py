"""The framework model server: ``python -m hostelry.containers.predictive --framework NAME``."""

import argparse
import asyncio
import logging
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.copy_key import take_key
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.logging import configure_logging
from hostelry.base.stop_event import stop_event
from hostelry.containers.http.listening import http_server, listen, served_on
from hostelry.containers.http.serving_app import ServingApp
from hostelry.containers.predictive.app import PredictiveApp
from hostelry.containers.predictive.batching import BatchLimits
from hostelry.containers.predictive.config import (
    MODULES,
    OF_MANY,
    TOOLKIT,
    PredictiveConfig,
    interpreter,
    resolve,
)
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_table import ModelRefusedError, ModelTable
from hostelry.containers.predictive.multi_model_app import MultiModelApp
from hostelry.containers.predictive.requirements import FILE, packages_of
from hostelry.containers.predictive.worker_pool import PoolLimits, WorkerPool
from hostelry.containers.predictive.worker_process import ModelPlaces
from hostelry.containers.predictive.zygote_process import (
    ZygoteProcess,
    lent_socket,
    worker_environment,
)
from hostelry.containers.variables import OWN_MODEL_DIR

LOAD_S = 3600.0  # the platform's own limit for a start is below it
EXIT_FAILURE, EXIT_CONFIGURATION = 1, 2

log = logging.getLogger("hostelry.containers.predictive")


def arguments(argv: Sequence[str], env: Mapping[str, str]) -> argparse.Namespace:
    """The command line; the variables are its defaults."""
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
        help="no model but those that POST /models loads (SAGEMAKER_MULTI_MODEL=true)",
    )
    given = parser.parse_args(argv)
    if not given.port.isdigit() or not 0 < int(given.port) < 65536:
        raise TerminalError(f"the port is {given.port!r}; it must be 1 to 65535")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; 0 after a drain, 1 after a failure, 2 for a wrong configuration."""
    configure_logging("predictive")
    key, lent = take_key(os.environ), lent_socket(os.environ)
    try:
        given = arguments(sys.argv[1:] if argv is None else argv, os.environ)
        python = interpreter(os.environ, given.runtime, given.python)
        cpus = len(os.sched_getaffinity(0))
        model_dir = given.model_dir.absolute()
        config = resolve(os.environ, given.framework, python, model_dir, cpus, given.multi_model)
        with packages_of(config.code_dir, python, os.environ) as packages:
            if lent is not None and (packages is not None or config.threads_per_worker > 1):
                lent.close()  # it has imported the framework before these packages, for one thread
                lent = None
            listener = listen(given.host, int(given.port))
            failure = uvloop.run(serve(config, listener, key, packages, lent))
    except TerminalError as error:
        log.error("%s", error)  # noqa: TRY400 - the message needs no traceback
        return EXIT_CONFIGURATION
    if failure:
        log.error("the server ends: %s", " ".join(failure.split()))
    return EXIT_FAILURE if failure else 0


async def serve(
    config: PredictiveConfig,
    listener: socket.socket,
    key: str | None,
    packages: Path | None,
    lent: socket.socket | None,
) -> str | None:
    """Run until SIGTERM or SIGINT; the reason when it ends by a failure instead.

    `packages` is the folder of those that the model's code names, `lent` the socket to a process
    of the agent's that has imported the framework.
    """
    stop = stop_event()
    metrics, clock = PredictiveMetrics(), MonotonicClock()
    environment = worker_environment(
        os.environ, config.python, config.model_dir, config.threads_per_worker
    )
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    zygote = ZygoteProcess(
        config.python,
        MODULES[config.framework],
        environment,
        TOOLKIT + (OF_MANY.get(config.framework, ()) if config.multi_model else ()),
    )
    served: WorkerPool | ModelTable
    if config.multi_model:
        table = model_table(config, zygote, clock, metrics)
        served, limit_s = table, config.predict_timeout_s
        app: ServingApp = MultiModelApp(table, config.max_request_bytes, limit_s, clock, metrics)
    else:
        served = WorkerPool(zygote, places_of(config), limits_of(config), clock, metrics)
        app = PredictiveApp(served, config.max_request_bytes, clock, metrics)
    http = http_server(served_on(listener, app.asgi(key)))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        return await run(zygote, served, app, stop, lent)
    finally:
        await served.close()
        await zygote.close()
        http.should_exit = True
        await serving


async def run(
    zygote: ZygoteProcess,
    served: WorkerPool | ModelTable,
    app: ServingApp,
    stop: asyncio.Event,
    lent: socket.socket | None,
) -> str | None:
    """Load, serve, drain; the reason of a failure, None after `stop`."""
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(started(zygote, served, lent))
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        return None
    try:
        starting.result()
    except HostelryError as error:
        stopping.cancel()
        return str(error)
    log.info("ready: %d workers, %s", len(served.pids), dict(zygote.versions))
    lost = asyncio.create_task(zygote.ended.wait())
    await asyncio.wait((lost, stopping), return_when=asyncio.FIRST_COMPLETED)
    lost.cancel()
    if not stop.is_set():
        stopping.cancel()
        return zygote.fault
    await app.drain()
    return None


async def started(
    zygote: ZygoteProcess, served: WorkerPool | ModelTable, lent: socket.socket | None
) -> None:
    """Import the framework, load the model in every worker."""
    await zygote.start(lent)
    await served.start()


def model_table(
    config: PredictiveConfig, zygote: ZygoteProcess, clock: Clock, metrics: PredictiveMetrics
) -> ModelTable:
    """An empty table; each of its models has a socket for each worker."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def pool_of(folder: Path) -> WorkerPool:
        return WorkerPool(zygote, places_of_one(config, folder), limits_of(config), clock, metrics)

    return ModelTable(zygote, pool_of, config.memory_bytes, clock, metrics)


def places_of_one(config: PredictiveConfig, folder: Path) -> ModelPlaces:
    """What a worker of one of many models loads; code of its own comes first."""
    own = folder / "code"
    if (own / FILE).is_file():
        raise ModelRefusedError(
            400,
            f"the model has code/{FILE}, which is not installed for one of many models; name its "
            "packages in that of SAGEMAKER_SUBMIT_DIRECTORY, which all of them share",
        )
    return ModelPlaces(
        model_dir=str(folder),
        code_dir=str(own if own.is_dir() else config.code_dir),
        framework=config.framework,
        environment={"SM_MODEL_DIR": str(folder), "SAGEMAKER_MULTI_MODEL": "true"},
    )


def places_of(config: PredictiveConfig) -> ModelPlaces:
    """What each worker loads."""
    return ModelPlaces(
        model_dir=str(config.model_dir),
        code_dir=str(config.code_dir),
        framework=config.framework,
        environment={},
    )


def limits_of(config: PredictiveConfig) -> PoolLimits:
    """The limits of the one model's workers."""
    return PoolLimits(
        num_workers=config.num_workers,
        max_queued=config.max_queued,
        predict_timeout_s=config.predict_timeout_s,
        load_timeout_s=LOAD_S,
        batch=BatchLimits(size=config.batch_size, delay_s=config.batch_delay_s),
    )


if __name__ == "__main__":
    raise SystemExit(main())

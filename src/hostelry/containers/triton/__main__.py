"""Triton as a model server: ``python -m hostelry.containers.triton``.

A front with SageMaker's routes, and a tritonserver for each model. Everything is read from
variables, as in AWS's image.
"""

import asyncio
import itertools
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.copy_key import take_key
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.logging import configure_logging
from hostelry.base.shared_memory import region_prefix, remove_regions
from hostelry.base.stop_event import stop_event
from hostelry.containers.http.listening import http_server, listen, served_on
from hostelry.containers.http.serving_app import ServingApp
from hostelry.containers.predictive.app import PredictiveApp
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_table import ModelTable
from hostelry.containers.predictive.multi_model_app import MultiModelApp
from hostelry.containers.triton.exposition import merged
from hostelry.containers.triton.model_folder import check_folder, default_model, needed
from hostelry.containers.triton.program import TritonProgram, find_program
from hostelry.containers.triton.repository import repository_of
from hostelry.containers.triton.settings import TritonSettings, resolve, without_effect
from hostelry.containers.triton.triton_models import TritonModels
from hostelry.containers.triton.triton_process import TritonOrder, remove_left
from hostelry.containers.variables import OWN_MODEL_DIR, whole

LOAD_S = 3600.0  # the platform's own limit for a start is below it
EXIT_FAILURE, EXIT_CONFIGURATION = 1, 2
COPY_FOLDER = "HOSTELRY_COPY_FOLDER"

log = logging.getLogger("hostelry.containers.triton")


class NoSharedProcess:
    """Models share no process here; each ends its own."""

    pid = 0

    async def exit_code(self, _pid: int) -> int | None:
        """None: the process has ended."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonPlaces:
    """What the servers of a copy share: the program, settings, and places for each one's files."""

    program: TritonProgram
    settings: TritonSettings
    scratch: Path
    regions: str
    multi_model: bool
    clock: Clock
    numbers: "itertools.count[int]"

    def models_of(self, folder: Path) -> TritonModels:
        """The model of an archive's folder."""
        number = next(self.numbers)

        def order() -> TritonOrder:
            return self._order(folder, number)

        return TritonModels(order, self.settings, self.clock)

    def _order(self, folder: Path, number: int) -> TritonOrder:
        own = self.scratch / str(number)
        own.mkdir(parents=True, exist_ok=True)
        repository, folders = repository_of(folder, own.absolute(), self.multi_model)
        chosen = default_model(folders, self.settings.default_name, self.multi_model)
        used = needed(chosen, folders)
        for each in used:
            check_folder(each, self.program.backend_names, str(self.program.path))
        log.info("requests are for the model %s (%s)", chosen.name, chosen.backend)
        return TritonOrder(
            program=self.program,
            repository=repository,
            model=chosen.name,
            inference=self.settings.inference,
            is_stateless=all(it.is_stateless for it in used),
            can_be_killed=all(it.can_be_killed for it in used),
            options=self.settings.options,
            folder=own / "server",
            regions=f"{self.regions}{number}-",
            load_limit_s=LOAD_S,
            proof_limit_s=self.settings.timeout_s,
        )


def main() -> int:
    """Serve until a signal; 0 after a drain, 1 after a failure, 2 for a wrong configuration."""
    configure_logging("triton")
    key = take_key(os.environ)
    scratch = own_place(os.environ)
    regions = region_prefix(Path(os.environ.get(COPY_FOLDER) or scratch.absolute()))
    remove_regions(regions)  # of a server that was killed
    try:
        settings = resolve(os.environ)
        ignored = without_effect(os.environ)
        if ignored:
            log.info("without effect here: %s", ", ".join(ignored))
        folder = Path(os.environ.get("HOSTELRY_MODEL_DIR") or OWN_MODEL_DIR).absolute()
        places = TritonPlaces(
            program=find_program(os.environ, scratch.absolute()),
            settings=settings,
            scratch=scratch,
            regions=regions,
            multi_model=os.environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true",
            clock=MonotonicClock(),
            numbers=itertools.count(),
        )
        port = whole(os.environ, "SAGEMAKER_BIND_TO_PORT", 8080, 1, 65535)
        listener = listen(os.environ.get("SAGEMAKER_BIND_HOST") or "127.0.0.1", port)
        failure = uvloop.run(serve(places, folder, listener, key))
    except TerminalError as error:
        log.error("%s", error)  # noqa: TRY400 - the message needs no traceback
        return EXIT_CONFIGURATION
    finally:
        remove_regions(regions)
        shutil.rmtree(scratch, ignore_errors=True)
    if failure:
        log.error("the server ends: %s", " ".join(failure.split()))
    return EXIT_FAILURE if failure else 0


def own_place(env: Mapping[str, str]) -> Path:
    """An empty folder of this server's, relative to the working folder of a copy."""
    if not env.get(COPY_FOLDER):
        return Path(tempfile.mkdtemp(prefix="hostelry-triton-"))
    place = Path("triton")
    remove_left(place)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    return place


async def serve(
    places: TritonPlaces, folder: Path, listener: socket.socket, key: str | None
) -> str | None:
    """Run until SIGTERM or SIGINT; the reason when it ends by a failure instead."""
    stop = stop_event()
    served: TritonModels | ModelTable
    app: ServingApp
    metrics, settings, clock = PredictiveMetrics(), places.settings, places.clock
    if places.multi_model:
        served = table = ModelTable(
            NoSharedProcess(), places.models_of, settings.memory_bytes, clock, metrics
        )
        limit_s = settings.timeout_s
        app = MultiModelApp(table, settings.max_request_bytes, limit_s, clock, metrics)
        app.further_metrics = lambda: pages_of(table)
    else:
        served = models = places.models_of(folder)
        app = PredictiveApp(models, settings.max_request_bytes, clock, metrics)
        app.further_metrics = lambda: page_of(models)
    http = http_server(served_on(listener, app.asgi(key)))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        return await run(served, app, stop)
    finally:
        await served.close()
        http.should_exit = True
        await serving


async def run(
    served: TritonModels | ModelTable, app: ServingApp, stop: asyncio.Event
) -> str | None:
    """Load, serve, drain; the reason of a failure, None after `stop`."""
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(served.start())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return None
    try:
        starting.result()
    except HostelryError as error:
        stopping.cancel()
        return str(error)
    log.info("ready")
    await stopping
    await app.drain()
    return None


async def page_of(models: TritonModels) -> bytes:
    """Triton's metrics of the one model."""
    return merged({"": await models.metrics()}).encode()


async def pages_of(table: ModelTable) -> bytes:
    """Triton's metrics of every loaded model, each with its TargetModel, or its name without."""
    models = [(it.target or it.name, it.pool) for it in table.models]
    found = [(name, pool) for name, pool in models if isinstance(pool, TritonModels)]
    pages = await asyncio.gather(*(pool.metrics() for _, pool in found))
    return merged({name: page for (name, _), page in zip(found, pages, strict=True)}).encode()


if __name__ == "__main__":
    raise SystemExit(main())

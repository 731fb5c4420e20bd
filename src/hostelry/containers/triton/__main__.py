"""Triton as a model server: ``python -m hostelry.containers.triton``.

A front with SageMaker's routes, and one tritonserver per model. All settings are variables, as in
AWS's image.
"""

import asyncio
import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.base.files import region_prefix, remove_regions
from hostelry.base.guards import take_key
from hostelry.base.logging import configure_logging
from hostelry.base.metrics_page import PageJoin, parse_page
from hostelry.containers.http.serving_app import (
    ServingApp,
    listen_by_variables,
    run_app,
    run_server,
    serve_http,
)
from hostelry.containers.predictive.app import MultiModelApp, PredictiveApp
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_table import ModelTable
from hostelry.containers.triton.model_folder import (
    check_folder,
    choose_model,
    find_needed,
    find_repository,
)
from hostelry.containers.triton.program import TritonProgram, find_program
from hostelry.containers.triton.settings import TritonSettings, list_without_effect, resolve
from hostelry.containers.triton.triton_models import TritonModels
from hostelry.containers.triton.triton_process import TritonOrder, remove_leftovers
from hostelry.containers.variables import OWN_MODEL_DIR

LOAD_S = 3600.0  # longer than the platform's limit for a start
COPY_FOLDER = "HOSTELRY_COPY_FOLDER"
TARGET = "target_model"
MAX_PAGE_BYTES = 8 * 1024 * 1024
# Metrics of the whole machine, which each server measures again.
LEFT_OUT = ("nv_cpu_", "nv_gpu_", "nv_energy_", "nv_pinned_")
RESERVED = ("hostelry_",)  # for the front's metrics, because a model's code can add others

LOG = logging.getLogger("hostelry.containers.triton")


class TritonPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """What the models of a copy share: the program, settings, and places for their files."""

    program: TritonProgram
    settings: TritonSettings
    scratch: Path
    regions: str
    multi_model: bool
    clock: Clock
    numbers: "itertools.count[int]"

    def build_models(self, folder: Path) -> TritonModels:
        """The model of an archive's folder."""
        number = next(self.numbers)
        return TritonModels(lambda: self._prepare(folder, number), self.settings, self.clock)

    def _prepare(self, folder: Path, number: int) -> TritonOrder:
        own = self.scratch / str(number)
        own.mkdir(parents=True, exist_ok=True)
        repository, folders = find_repository(folder, own.absolute(), self.multi_model)
        chosen = choose_model(folders, self.settings.default_name, self.multi_model)
        used = find_needed(chosen, folders)
        for model in used:
            check_folder(model, self.program.backend_names, str(self.program.path))
        LOG.info("requests are for the model %s (%s)", chosen.name, chosen.backend)
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
    """Serve until a signal. Returns the exit status (see `run_server`)."""
    configure_logging("triton")
    key = take_key(os.environ)
    scratch = make_scratch(os.environ)
    regions = region_prefix(Path(os.environ.get(COPY_FOLDER) or scratch.absolute()))
    remove_regions(regions)  # of a server that was killed
    try:
        return run_server(partial(start, key, scratch, regions))
    finally:
        remove_regions(regions)
        shutil.rmtree(scratch, ignore_errors=True)


def start(key: str | None, scratch: Path, regions: str) -> str | None:
    """Serve as the variables say. Returns the reason of a failure. Raises TerminalError."""
    settings = resolve(os.environ)
    ignored = list_without_effect(os.environ)
    if ignored:
        LOG.info("without effect here: %s", ", ".join(ignored))
    places = TritonPlaces(
        program=find_program(os.environ, scratch.absolute()),
        settings=settings,
        scratch=scratch,
        regions=regions,
        multi_model=os.environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true",
        clock=MonotonicClock(),
        numbers=itertools.count(),
    )
    folder = Path(os.environ.get("HOSTELRY_MODEL_DIR") or OWN_MODEL_DIR).absolute()
    return uvloop.run(serve(places, folder, key))


def make_scratch(env: Mapping[str, str]) -> Path:
    """Make an empty folder for this server. In a copy it is relative to the working folder."""
    if not env.get(COPY_FOLDER):
        return Path(tempfile.mkdtemp(prefix="hostelry-triton-"))
    place = Path("triton")
    remove_leftovers(place)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    return place


async def serve(places: TritonPlaces, folder: Path, key: str | None) -> str | None:
    """Run until SIGTERM or SIGINT. Returns the reason if the start fails. Raises TerminalError."""
    listener = listen_by_variables()
    served: TritonModels | ModelTable
    app: ServingApp
    metrics, settings, clock = PredictiveMetrics(), places.settings, places.clock
    if places.multi_model:
        served = table = ModelTable(
            None, places.build_models, settings.memory_bytes, clock, metrics
        )
        limit_s = settings.timeout_s
        app = MultiModelApp(table, settings.max_request_bytes, limit_s, clock, metrics)
        app.further_metrics = lambda: get_metrics(table)
    else:
        served = models = places.build_models(folder)
        app = PredictiveApp(models, settings.max_request_bytes, clock, metrics)

        async def get_page() -> bytes:
            return merge_pages({"": await models.metrics()}).encode()

        app.further_metrics = get_page

    async def load() -> None:
        await served.start()
        LOG.info("ready")

    async with serve_http(app, listener, key):
        try:
            return await run_app(app, load())
        finally:
            await served.close()


async def get_metrics(table: ModelTable) -> bytes:
    """Triton's metrics of every loaded model, labelled by its TargetModel or else its name."""
    models = [(model.target or model.name, model.pool) for model in table.models]
    tritons = [(name, pool) for name, pool in models if isinstance(pool, TritonModels)]
    pages = await asyncio.gather(*(pool.metrics() for _, pool in tritons))
    names = [name for name, _ in tritons]
    return merge_pages(dict(zip(names, pages, strict=True))).encode()


def merge_pages(pages: Mapping[str, str]) -> str:
    """Merge Triton's pages for Prometheus by target, which is a label unless it is empty. Pure."""
    join = PageJoin(MAX_PAGE_BYTES)
    for target, page in pages.items():
        join.add({TARGET: target} if target else {}, parse_page(page.encode(), RESERVED))
    return join.text(LEFT_OUT)


if __name__ == "__main__":
    raise SystemExit(main())

"""docs/choosing.md from measured numbers: the mixes, the advice for each, the page's tables.

1. Measures each hosting option on this machine, on a real platform.
2. Writes the measured values into the mixes of examples/fit, with date and source.
3. Advises each mix, and writes docs/choosing/measured.json, its charts, and the generated
   part of docs/choosing.md.

``--begin advice`` uses the values in measured.json, ``--begin page`` its advice, too.

``python -m benchmarks.choosing [--setting smoke|short|full] [--begin STEP]``
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.integration.framework_rig import runtimes_with
from tests.integration.platform import Platform

from benchmarks.adapter_shelf import make_shelf
from benchmarks.choosing_measure import SMALL, MeasureSetting, OptionMeter, read_load
from benchmarks.choosing_mixes import (
    CALIBRATION,
    MIXES,
    advise_mix,
    build_calibration,
    encode_calibration,
    fill_mix,
    index_rows,
)
from benchmarks.choosing_page import build_part, replace_part
from benchmarks.cost_fleet import Fleet
from benchmarks.many_models_platform import ASKED_RUNTIME, runtime_in, train_archives, upload
from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from hostelry.base.runtimes import VARIABLE

ROOT = Path(__file__).resolve().parents[1]
PAGE, CHARTS, MIX_FOLDER = ROOT / "docs/choosing.md", ROOT / "docs/choosing", ROOT / "examples/fit"
MEASURED = CHARTS / "measured.json"
MEASURING, ADVICE, PAGE_STEP = STEPS = ("measuring", "advice", "page")
SEED = 20261130
NUM_MODELS, RANK, NUM_ADAPTERS = 10, 16, 4
SETTINGS = {
    "smoke": MeasureSetting(
        num_calls=10, load_s=0.3, at_once=(1, 2), num_queued=5, num_lines=20,
        num_cold=1, num_containers=3, num_streams=2,
    ),
    "short": MeasureSetting(
        num_calls=200, load_s=2.0, at_once=(1, 2, 4, 8), num_queued=300, num_lines=20_000,
        num_cold=2, num_containers=5, num_streams=8,
    ),
    "full": MeasureSetting(
        num_calls=2000, load_s=10.0, at_once=(1, 2, 4, 8, 16), num_queued=2000, num_lines=200_000,
        num_cold=5, num_containers=15, num_streams=30,
    ),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choosing", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--begin", choices=STEPS, default=STEPS[0], help="with this step")
    arguments = parser.parse_args(argv)
    if arguments.begin == MEASURING:
        found = measure(SETTINGS[arguments.setting], tiny=arguments.setting == "smoke")
        written = write_result("choosing", arguments.setting, SEED, found)
        document = msgspec.json.decode(written.read_bytes())
        measured = {**document.pop("measured"), **document}
        print_options(measured["options"])
    else:
        measured = read_measured(MEASURED)
    if arguments.setting == "smoke":
        print("The smoke setting writes no page.")
        return
    fill_mixes(MIX_FOLDER, measured)
    if arguments.begin != PAGE_STEP:
        measured["mixes"] = {}
        for name in MIXES:
            measured["mixes"][name], chart = advise_mix(MIX_FOLDER, name, show_progress)
            (CHARTS / f"{name}.svg").write_text(chart, encoding="utf-8")
    MEASURED.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    page = replace_part(PAGE.read_text(encoding="utf-8"), build_part(measured))
    PAGE.write_text(page, encoding="utf-8")
    print(f"written to {PAGE}")


def read_measured(path: Path) -> dict[str, Any]:
    """The measured values, and the advice of each mix."""
    found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return found


def fill_mixes(folder: Path, measured: Mapping[str, Any]) -> None:
    """Write the measured values into the mixes, and the LLM's calibration."""
    rows, date = index_rows(measured["options"]), measured["measured_at"][:10]
    machine = f"{measured['hardware']['cores']} cores"
    calibration = encode_calibration(build_calibration(rows, date, machine))
    (folder / CALIBRATION).write_bytes(calibration)
    for name in MIXES:
        path = folder / f"{name}.toml"
        path.write_text(fill_mix(path.read_text(encoding="utf-8"), rows, date), encoding="utf-8")


def show_progress(text: str) -> None:
    """Print the option that is simulated."""
    print(f"  {text}", flush=True)


def print_options(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the measured rows. Not every option has every value."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    print_table("Options", [{key: row.get(key, "") for key in keys} for row in rows])


def measure(setting: MeasureSetting, *, tiny: bool) -> dict[str, Any]:
    """The options' measured values, and the load of the machine before and after."""
    load_before = read_load()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        model = model_folder(None, scratch, tiny=tiny)
        shelf = make_shelf(scratch / "shelf", model, (RANK,), NUM_ADAPTERS, SEED, files_per_rank=1)
        runtimes = runtimes_with(ASKED_RUNTIME)
        archives = scratch / "models"
        num = max(NUM_MODELS, setting.num_containers)
        answers = train_archives(runtime_in(runtimes), archives, num, 1.0, SEED)
        environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
        home = scratch / "home"
        with Platform(home, "--serverless-idle-s", "5", environment=environment) as platform:
            upload(platform, archives, sorted(answers))
            fleet = Fleet(platform, answers, SMALL)
            fleet.upload_base(model, shelf.folders)
            meter = OptionMeter(platform, fleet, sorted(answers), setting)
            rows = [*meter.measure_all(), meter.measure_llm(list(shelf.folders))]
    return {"options": rows, "load_before": load_before, "load_after": read_load()}


if __name__ == "__main__":
    main()

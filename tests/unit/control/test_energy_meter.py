"""Measured energy: RAPL's counters, nvidia-smi's answers, and the records."""

from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.unit.control.test_usage_recorder import HERE, Rig

from hostelry.control.energy_meter import (
    EnergyMeter,
    EnergyRecorder,
    PackageCounter,
    parse_watts,
    read_counters,
    sum_energy,
)
from hostelry.home.price_file import PriceFile


def write_package(folder: Path, name: str, energy: str, highest: str = "1000") -> None:
    package = folder / name
    package.mkdir(exist_ok=True)
    (package / "energy_uj").write_text(energy)
    (package / "max_energy_range_uj").write_text(highest)


def test_packages_are_read_and_the_rest_is_left_out(tmp_path: Path) -> None:
    write_package(tmp_path, "intel-rapl:0", "7\n")
    write_package(tmp_path, "intel-rapl:1", "8")
    write_package(tmp_path, "intel-rapl:0:0", "1")
    write_package(tmp_path, "intel-rapl:2", "x")
    write_package(tmp_path, "intel-rapl:3", "2000")
    write_package(tmp_path, "intel-rapl:4", "-1")
    (tmp_path / "intel-rapl:5").mkdir()
    assert read_counters(tmp_path) == {
        "intel-rapl:0": PackageCounter(7, 1000),
        "intel-rapl:1": PackageCounter(8, 1000),
    }
    assert read_counters(tmp_path / "none") == {}


@cases(
    "before, after, joules",
    case("two packages", {"a": 1, "b": 2}, {"a": 500_001, "b": 500_002}, 1.0),
    case("a counter that began again", {"a": 900_000}, {"a": 100_000}, 0.2),
    case("a package that was not read before", {"a": 0}, {"a": 1_000_000, "b": 5}, 1.0),
    case("no package", {}, {"a": 5}, None),
)
def test_energy_between_two_looks(
    before: dict[str, int], after: dict[str, int], joules: float | None
) -> None:
    first, second = (
        {name: PackageCounter(it, 1_000_000) for name, it in counters.items()}
        for counters in (before, after)
    )
    assert sum_energy(first, second) == pytest.approx(joules)


@cases(
    "lines, watts",
    case("two accelerators", ["70.5", "29.5"], 100.0),
    case("no power", ["70.5", "[N/A]"], None),
    case("nothing", [""], None),
    case("no number", ["nan"], None),
    case("a negative power", ["-5"], None),
    case("too much", ["1e9"], None),
)
def test_watts(lines: list[str], watts: float | None) -> None:
    assert parse_watts(lines) == watts


def test_energy_is_recorded_while_the_prices_ask_for_it(tmp_path: Path) -> None:
    rig, prices = Rig(), tmp_path / "prices.toml"
    watts: list[float | None] = [10.0]
    write_package(tmp_path, "intel-rapl:0", "0", "10000000000")
    meter = EnergyMeter(tmp_path, lambda: watts[0])
    recorder = EnergyRecorder(HERE, rig.metrics, PriceFile(prices), meter, rig.clock)
    recorder.record()
    prices.write_text('currency = "EUR"\n[electricity]\nmeasured = true\nprice_per_kwh = 1\n')
    for energy_uj in ("0", "60000000", "120000000"):
        write_package(tmp_path, "intel-rapl:0", energy_uj, "10000000000")
        recorder.record()
        rig.clock.advance(60)
    assert rig.total("UsageEnergy") == pytest.approx(120 + 2 * 60 * 10)
    assert rig.total("UsageEnergyTime") == 120
    watts[0] = None
    recorder.record()
    assert rig.total("UsageEnergyTime") == 120, "accelerators that report nothing are unknown"

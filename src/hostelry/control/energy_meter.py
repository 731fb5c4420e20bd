"""Measures the energy of this machine: processors by RAPL, NVIDIA accelerators by nvidia-smi.

RAPL's counters are the packages in /sys/class/powercap, which most kernels show to root alone.
nvidia-smi reports the power of each accelerator, which is taken for the time since the last look.
Other parts of the machine are not measured.
"""

import logging
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from hostelry.base.clock import Clock
from hostelry.domain.scope import Scope
from hostelry.home.price_file import PriceFile
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.sagemaker.usage import sample_energy

LOG = logging.getLogger(__name__)
POWERCAP = Path("/sys/class/powercap")
QUERY = ("--query-gpu=power.draw", "--format=csv,noheader,nounits")
TIMEOUT_S = 10.0
MAX_WATTS = 100_000.0
J_PER_UJ = 1e-6
MAX_DEVICES = 64


class PackageCounter(msgspec.Struct, frozen=True):
    """A package's counter in microjoules. It begins again at 0 above `range_uj`."""

    energy_uj: int
    range_uj: int


def read_counters(folder: Path) -> Mapping[str, PackageCounter]:
    """The counters of the packages that can be read, by name."""
    found = {}
    for package in sorted(folder.glob("intel-rapl:*"))[:MAX_DEVICES]:
        if package.name.count(":") != 1:  # a part of a package
            continue
        try:
            energy, highest = (
                int((package / name).read_text()) for name in ("energy_uj", "max_energy_range_uj")
            )
        except (OSError, ValueError):
            continue
        if 0 <= energy <= highest:
            found[package.name] = PackageCounter(energy, highest)
    return found


def sum_energy(
    before: Mapping[str, PackageCounter], after: Mapping[str, PackageCounter]
) -> float | None:
    """The joules between two looks at the counters. None if no package was read twice."""
    both = before.keys() & after.keys()
    if not both:
        return None
    spent = ((after[it].energy_uj - before[it].energy_uj, after[it].range_uj) for it in both)
    return sum(uj if uj >= 0 else uj + highest for uj, highest in spent) * J_PER_UJ


def parse_watts(lines: Iterable[str]) -> float | None:
    """The sum of the powers in nvidia-smi's answer. None if any accelerator reports none."""
    watts = []
    for line in lines:
        try:
            watts.append(float(line))
        except ValueError:
            return None
    is_possible = bool(watts) and all(0 <= it <= MAX_WATTS for it in watts)
    return math.fsum(watts) if is_possible else None


def ask_accelerators() -> float | None:
    """The power of all NVIDIA accelerators in watts: 0 without nvidia-smi, None if it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0.0
    try:
        done = subprocess.run(
            [tool, *QUERY], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        LOG.warning("nvidia-smi reports no power: %s", error)
        return None
    return parse_watts(done.stdout.strip().split("\n")[:MAX_DEVICES])


class EnergyMeter:
    """Joules between two looks, of this machine's processors and accelerators.

    Args:
        folder: the folder of RAPL's counters.
        ask_watts: the power of the accelerators, or None.
    """

    def __init__(
        self,
        folder: Path = POWERCAP,
        ask_watts: Callable[[], float | None] = ask_accelerators,
    ) -> None:
        self._folder = folder
        self._ask_watts = ask_watts
        self._counters: Mapping[str, PackageCounter] = {}
        self.looked_at: float | None = None

    def measure(self, now: float) -> Mapping[str, float]:
        """The joules since the last look, by source: "processors", "accelerators".

        Empty if either cannot be measured, and at the first look.
        """
        before, since = self._counters, self.looked_at
        self._counters, self.looked_at = read_counters(self._folder), now
        processors, watts = sum_energy(before, self._counters), self._ask_watts()
        if since is None or now <= since or processors is None or watts is None:
            return {}
        return {"processors": processors, "accelerators": watts * (now - since)}


class EnergyRecorder:
    """Records the energy of this machine while a price file asks for it."""

    def __init__(
        self,
        owner: Scope,
        metrics: MetricWriter,
        prices: PriceFile,
        meter: EnergyMeter,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._metrics = metrics
        self._prices = prices
        self._meter = meter
        self._clock = clock

    def record(self) -> None:
        """Record the energy since the last call."""
        prices = self._prices.get()
        if prices is None or prices.per_measured_kwh is None:
            return
        now, since = self._clock.now(), self._meter.looked_at
        joules = self._meter.measure(now)
        if since is not None and joules:
            samples = [it for _, it in sample_energy(self._owner, joules, since, now)]
            self._metrics.emit(self._owner, samples)

"""The tasks of control from which costs are computed: usage, energy and budgets."""

import asyncio
from collections.abc import Callable, Mapping

from hostelry.base.clock import Clock, thread_cpu_s, until_next_s
from hostelry.base.concurrency import Step
from hostelry.control.budget_watch import BudgetWatch
from hostelry.control.data import ControlData
from hostelry.control.energy_meter import EnergyMeter, EnergyRecorder
from hostelry.control.usage_recorder import UsageRecorder
from hostelry.cost.holding import HeldInstance
from hostelry.domain.scope import Scope
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.price_file import PriceFile
from hostelry.reconcile.holdings import list_held
from hostelry.reconcile.record import load_all

RECORD_S, MEASURE_S, EVALUATE_S = 10.0, 60.0, 300.0
SHARE = 100.0  # minimum pause, as a multiple of the processor time of the work


def build_cost_tasks(
    home: Home, config: UpConfig, credentials: Credentials, data: ControlData, clock: Clock
) -> Mapping[str, Step]:
    """The tasks by their names in the log."""
    owner, prices = Scope(credentials.account_id, credentials.region), PriceFile(home.prices)

    def list_now() -> list[HeldInstance]:
        return list(list_held(load_all(data.state)))

    objects = home.objects if config.s3_endpoint is None else None
    usage = UsageRecorder(owner, data.metrics, list_now, objects, clock)
    energy = EnergyRecorder(owner, data.metrics, prices, EnergyMeter(), clock)
    budgets = BudgetWatch(owner, data.state, data.metrics, prices, clock)
    return {
        "recording usage": _repeat(usage.record, RECORD_S, clock),
        "measuring energy": _repeat(energy.record, MEASURE_S, clock),
        "evaluating budgets": _repeat(budgets.publish, EVALUATE_S, clock),
    }


def _repeat(work: Callable[[], None], every_s: float, clock: Clock) -> Step:
    """A task that does the work in a thread at once, and then at multiples of `every_s`.

    Work that takes more than 1 % of a processor is done less often.
    """

    def measure() -> float:
        started = thread_cpu_s()
        work()
        return thread_cpu_s() - started

    async def repeat() -> None:
        while True:
            spent_s = await asyncio.to_thread(measure)
            await clock.sleep(max(until_next_s(clock.now(), every_s), SHARE * spent_s))

    return repeat

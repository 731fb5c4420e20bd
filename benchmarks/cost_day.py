"""The cost of a replayed day of mixed traffic, and the savings of sharing.

A real platform serves ten scikit-learn models on a multi-model endpoint, ten as components of one
instance, a base LLM with 100 adapters as components, and a serverless endpoint. boto3 sends a day's
traffic of several tenants through the gateway in a minute or so. Then `hostelry cost` divides the
cost by tenant, adapter, target model and component. The parts must sum to the machine's total
within 0.5 %: the lifetimes of the instances' agents, as the kernel shows them, times prices.

Afterwards each shared fleet is compared with the same models on an endpoint each. 100 endpoints of
a merged adapter do not fit: one endpoint of the base is measured, and its memory is multiplied.

Prices: an ml.c5.large costs 0.102 USD an hour (the published example of ten models on a
multi-model endpoint), larger sizes the same per vCPU. The serverless price is an assumption.

``python -m benchmarks.cost_day [--setting smoke|short|full]``
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.integration.framework_rig import runtimes_with
from tests.integration.platform import Platform, until

from benchmarks.adapter_shelf import make_shelf
from benchmarks.cost_fleet import COMPONENT_CPUS, CallTarget, Fleet
from benchmarks.cost_sharing import Claim, FootprintMeter, footprint_rows, saving_rows
from benchmarks.cost_traffic import DAY_HOURS, STREAMS, DayCall, draw_day
from benchmarks.many_models_platform import (
    ASKED_RUNTIME,
    running_platform,
    runtime_in,
    train_archives,
    upload,
)
from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from hostelry.base.proc import process_stat, uptime_s
from hostelry.cost.usage import MB_MS_PER_GB_S
from hostelry.fleet.shapes import get_shape

SEED = 20261130
RANKS = (16, 8)
USD_PER_VCPU_HOUR = 0.102 / 2
USD_PER_GB_S = 2e-5
SMALL, MEDIUM, LARGE = "ml.c5.large", "ml.c5.xlarge", "ml.c5.2xlarge"
MULTI_MODEL, COMPONENTS, ADAPTERS, SERVERLESS = "shop", "parts", "chat", "accounts"
OWN_BASE, CONTAINERS = "own-base", "containers"
BY = ("tenant", "adapter", "model", "component", "endpoint")
MAX_DIFFERENCE = 0.005
SENDERS, MAX_SHOWN, WITHIN_S = 16, 8, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Numbers of models, the seconds in which an hour is replayed, calls whose CPU is measured."""

    num_models: int
    num_containers: int
    num_adapters: int
    hour_s: float
    num_calls: int


SETTINGS = {
    "smoke": Setting(num_models=2, num_containers=3, num_adapters=4, hour_s=0.4, num_calls=4),
    "short": Setting(num_models=10, num_containers=15, num_adapters=100, hour_s=1.5, num_calls=60),
    "full": Setting(num_models=10, num_containers=15, num_adapters=100, hour_s=15.0, num_calls=400),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBench:
    """The platform, and the fleets that can run on it."""

    platform: Platform
    fleet: Fleet
    setting: Setting
    models: Sequence[str]
    adapters: Sequence[str]


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_day", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        model = model_folder(None, scratch, tiny=arguments.setting == "smoke")
        shelf = make_shelf(
            scratch / "shelf", model, RANKS, setting.num_adapters, SEED, files_per_rank=2
        )
        runtimes = runtimes_with(ASKED_RUNTIME)
        archives = scratch / "models"
        answers = train_archives(
            runtime_in(runtimes), archives, setting.num_containers, 1.0, arguments.seed
        )
        with running_platform(scratch, runtimes) as platform:
            platform.home.prices.write_text(write_prices())
            upload(platform, archives, sorted(answers))
            fleet = Fleet(platform, answers, SMALL)
            meter = FootprintMeter(fleet, platform.processes, setting.num_calls)
            print("uploading the base and its adapters", flush=True)
            fleet.upload_base(model, shelf.folders)
            bench = CostBench(
                platform=platform,
                fleet=fleet,
                setting=setting,
                models=sorted(answers),
                adapters=list(shelf.folders),
            )
            measured = measure(bench, meter, random.Random(arguments.seed))
    for title, rows in measured.items():
        print_table(title, rows)
    write_result("cost_day", arguments.setting, arguments.seed, measured)
    check_sums(measured["Sums"])


def measure(
    bench: CostBench, meter: FootprintMeter, source: random.Random
) -> dict[str, list[dict[str, Any]]]:
    """Replay the day, and compare the fleets."""
    print("deploying the day's fleet", flush=True)
    targets = deploy_day(bench)
    calls = draw_day(STREAMS, {name: len(them) for name, them in targets.items()}, source)
    print(f"sending {len(calls)} requests", flush=True)
    late_s = send_day(bench, targets, calls)
    reports, total = read_reports(bench, len(calls))
    measured = {f"By {by}": shorten(reports[by]) for by in BY}
    measured["Idle"] = idle_rows(reports["endpoint"])
    measured["Sums"] = sum_rows(reports, total, len(calls))
    measured["Day"] = [{"requests": len(calls), "worst lateness s": late_s, **total}]
    print("comparing with an endpoint each", flush=True)
    claims = compare(bench, meter, targets["adapters"])
    measured["Footprints"] = footprint_rows(claims)
    measured["Savings"] = saving_rows(claims)
    return measured


def write_prices() -> str:
    """prices.toml of the benchmark."""
    types = "".join(
        f'[instances."{name}"]\nprice_per_hour = {find_price(name)}\n'
        for name in (SMALL, MEDIUM, LARGE)
    )
    return (
        f'currency = "USD"\n{types}[serverless]\nprice_per_gb_s = {USD_PER_GB_S}\n'
        "[transfer]\nprice_per_gb_in = 0\nprice_per_gb_out = 0\n"
        "[storage]\nprice_per_gb_month = 0\n"
    )


def find_price(instance_type: str) -> float:
    """USD per hour of an instance."""
    return USD_PER_VCPU_HOUR * get_shape(instance_type).cpus


def find_type(num_components: int) -> str:
    """The smallest instance type for that number of components."""
    needed = num_components * COMPONENT_CPUS
    return next(it for it in (SMALL, MEDIUM, LARGE) if get_shape(it).cpus >= needed)


def deploy_day(bench: CostBench) -> dict[str, list[CallTarget]]:
    """Create the day's endpoints. Returns the targets of each fleet."""
    fleet, models = bench.fleet, bench.models[: bench.setting.num_models]
    with ThreadPoolExecutor(1) as pool:
        adapters = pool.submit(fleet.list_adapters, ADAPTERS, MEDIUM, bench.adapters)
        found = {
            "multi-model": fleet.list_multi_model(MULTI_MODEL, models),
            "components": fleet.list_components(COMPONENTS, find_type(len(models)), models),
            "serverless": fleet.list_serverless(SERVERLESS, models[0]),
        }
        return {**found, "adapters": adapters.result()}


def send_day(
    bench: CostBench, targets: Mapping[str, Sequence[CallTarget]], calls: Sequence[DayCall]
) -> float:
    """Send the requests when they are due. Returns how late the latest was sent, in seconds."""
    bench.fleet.know_tenants({"", *(it.tenant for it in calls)})
    began_s, late_s = time.monotonic(), 0.0

    def send(call: DayCall, due_s: float) -> float:
        late = time.monotonic() - due_s
        bench.fleet.call(targets[call.fleet][call.target], call.tenant)
        return late

    with ThreadPoolExecutor(SENDERS) as pool:
        sent = []
        for call in calls:
            due_s = began_s + call.hour * bench.setting.hour_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            sent.append(pool.submit(send, call, due_s))
        late_s = max(it.result() for it in sent)
    time.sleep(max(0.0, began_s + DAY_HOURS * bench.setting.hour_s - time.monotonic()))
    return late_s


def read_reports(bench: CostBench, num_sent: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The reports of `hostelry cost`, and the machine's total of the same moment."""
    platform = bench.platform

    def is_counted() -> bool:
        return count_calls(read_report(platform, "endpoint")) >= num_sent

    until(is_counted, "all requests are recorded", WITHIN_S)
    for _ in range(6):
        wait_for_record(platform)
        through = read_through(platform)
        reports = {by: read_report(platform, by) for by in BY}
        if read_through(platform) == through:
            return reports, measure_machine(platform, through)
    raise RuntimeError("a record was written during each reading of the reports")


def wait_for_record(platform: Platform) -> None:
    """Wait until the next record is written, after which the next one takes 10 s."""
    last = read_through(platform)
    until(lambda: read_through(platform) > last, "a record is written", WITHIN_S)


def read_report(platform: Platform, by: str) -> dict[str, Any]:
    """The report of `hostelry cost`."""
    shown = platform.cli("cost", "--last", "3h", "--by", by, "--json").stdout
    found: dict[str, Any] = json.loads(shown)
    return found


def read_through(platform: Platform) -> float:
    """The end of the records, in seconds since the epoch. 0 before the first record."""
    points = read_statistics(platform, "UsageRecordedThrough", "Maximum")
    return max((it["Maximum"] for it in points), default=0.0)


def read_statistics(
    platform: Platform, metric: str, statistic: str, **dimensions: str
) -> list[dict[str, Any]]:
    """A metric of Hostelry's namespace over the last hours, from CloudWatch's API."""
    now = datetime.now(UTC)
    found = platform.boto3("cloudwatch").get_metric_statistics(
        Namespace="Hostelry",
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        StartTime=now - timedelta(hours=3),
        EndTime=now + timedelta(hours=1),
        Period=300,
        Statistics=[statistic],
    )
    points: list[dict[str, Any]] = found["Datapoints"]
    return points


def measure_machine(platform: Platform, through: float) -> dict[str, float]:
    """The cost until `through`: the lives of agents times prices, and serverless use."""
    state = json.loads(platform.cli("status", "--json").stdout)["state"]
    amount, seconds = 0.0, 0.0
    for endpoint in state["endpoints"]:
        for instance in endpoint["instances"]:
            if endpoint["name"] != SERVERLESS:
                life_s = through - find_start(platform, instance["id"])
                seconds += life_s
                amount += life_s / 3600 * find_price(instance["type"])
    used = read_statistics(
        platform,
        "ServerlessMemoryTime",
        "Sum",
        EndpointName=SERVERLESS,
        VariantName="AllTraffic",
    )
    gb_s = sum(it["Sum"] for it in used) / MB_MS_PER_GB_S
    return {
        "instance s": seconds,
        "serverless GB-s": gb_s,
        "machine USD": amount + gb_s * USD_PER_GB_S,
    }


def find_start(platform: Platform, instance_id: str) -> float:
    """The start of an instance's agent, in seconds since the epoch, from the kernel."""
    record = json.loads((platform.home.instances / instance_id / "agent.json").read_bytes())
    stat = process_stat(record["pid"])
    if stat is None:
        raise RuntimeError(f"the agent of {instance_id} has ended")
    return time.time() - uptime_s(stat)


def count_calls(report: Mapping[str, Any]) -> int:
    """The requests in the rows of a report."""
    return round(sum(it["calls"] or 0 for it in report["rows"]))


def sum_rows(
    reports: Mapping[str, Any], total: Mapping[str, float], num_sent: int
) -> list[dict[str, Any]]:
    """The sum of all parts of each report, compared with the machine's total."""
    rows = []
    for by, report in reports.items():
        parts = [*report["rows"], *report["idle"]]
        if report["missing_prices"] or any(it["amount"] is None for it in parts):
            raise RuntimeError(f"prices are missing: {report['missing_prices']}")
        amount = sum(it["amount"] for it in parts)
        rows.append(
            {
                "by": by,
                "parts USD": f"{amount:.6f}",
                "machine USD": f"{total['machine USD']:.6f}",
                "parts / machine": f"{amount / total['machine USD']:.5f}",
                "recorded / sent requests": f"{count_calls(report) / num_sent:.5f}",
            }
        )
    return rows


def check_sums(rows: Sequence[Mapping[str, Any]]) -> None:
    """Exit with an error if the parts differ from the total, or requests are missing."""
    for row in rows:
        if abs(float(row["parts / machine"]) - 1) > MAX_DIFFERENCE:
            raise SystemExit(f"by {row['by']}: parts and machine differ by more than 0.5 %")
        if float(row["recorded / sent requests"]) != 1:
            raise SystemExit(f"by {row['by']}: not all requests were recorded once")


def shorten(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The most expensive rows of a report, and the sum of the others."""
    rows = report["rows"]
    first, others = rows[:MAX_SHOWN], rows[MAX_SHOWN:]
    found = [to_row(it["name"], [it]) for it in first]
    return [*found, to_row(f"({len(others)} others)", others)] if others else found


def to_row(name: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A row of the benchmark's table."""
    amount, calls = sum(it["amount"] for it in parts), sum(it["calls"] or 0 for it in parts)
    per_1000 = f"{1000 * amount / calls:.4f}" if calls else "-"
    return {"name": name, "USD": f"{amount:.6f}", "requests": calls, "USD per 1,000": per_1000}


def idle_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cost that belongs to no model."""
    return [
        {
            "name": idle["component"] or idle["endpoint"],
            "why": idle["reason"],
            "USD": f"{idle['amount']:.6f}",
        }
        for idle in report["idle"]
    ]


def compare(bench: CostBench, meter: FootprintMeter, chat: Sequence[CallTarget]) -> list[Claim]:
    """Measure one fleet after the other. The adapters of the day are still in service."""
    fleet, setting = bench.fleet, bench.setting
    models, containers = bench.models[: setting.num_models], bench.models[: setting.num_containers]
    num = len(models)

    def alone(what: str, kind: str, list_targets: Callable[[], list[CallTarget]]) -> Any:
        targets = list_targets()
        found = meter.measure(what, targets, get_shape(kind).cpus, find_price(kind))
        fleet.remove({it.options["EndpointName"] for it in targets})
        return found

    fleet.remove([MULTI_MODEL, COMPONENTS, SERVERLESS])
    adapters = alone("one base, all adapters", MEDIUM, lambda: list(chat))
    base = alone("the base alone", SMALL, lambda: fleet.list_base(OWN_BASE))
    multi = alone("one endpoint", SMALL, lambda: fleet.list_multi_model("again", models))
    kind = find_type(num)
    parts = alone("one instance", kind, lambda: fleet.list_components("packed", kind, models))
    boxes = alone("one endpoint", SMALL, lambda: fleet.list_containers(CONTAINERS, containers))
    own = fleet.list_own(models)
    ten = meter.measure(
        "an endpoint each", own, num * get_shape(SMALL).cpus, num * find_price(SMALL)
    )
    own += fleet.list_own(containers[num:])
    fifteen = meter.measure(
        "an endpoint each", own, len(own) * get_shape(SMALL).cpus, len(own) * find_price(SMALL)
    )
    return [
        Claim(name=f"{num} models, multi-model", shared=multi, own=ten),
        Claim(
            name=f"{len(chat)} adapters of one base",
            shared=adapters,
            own=base.times(len(chat)),
        ),
        Claim(name=f"{num} components", shared=parts, own=ten),
        Claim(name=f"{len(own)} containers", shared=boxes, own=fifteen),
    ]


if __name__ == "__main__":
    main()

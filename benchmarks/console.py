"""Cost of the console to its platform: 0, 1 and 20 viewers of a fleet of 1,000 components.

The components are declared by CreateInferenceComponent. A copy of the first component echoes, and
gets a paced load of signed requests. Each other component asks for a whole instance, of which that
copy has a part, so control explains each of them when records change. This fleet is the most
costly. A record is written each second. ``cores`` is a part's processor time in a second, as a
difference to the same round without viewers. ``p99`` is the load's, as a ratio to that round.
Rounds alternate. The aims: 0.03 cores for each viewer, and a page that can be used within 1 s.

``interactive`` is the time from opening the address to a fleet that is drawn, in Debian's Chromium.

``python -m benchmarks.console [--setting tiny|short|full]``
"""

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKeys
from tests.integration.console_rig import chromium, sign_in_link
from tests.integration.drill import (
    COMPONENT,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.drill import ENDPOINT as FIRST
from tests.integration.platform import Platform

from benchmarks.console_viewers import Watched, watching
from benchmarks.gateway_load import message
from benchmarks.open_load import Due, Generator, Outcome, Plan
from benchmarks.platform_cpu import cpu_s_by_part, used_s
from benchmarks.record import print_table, write_result
from hostelry.base.clock import monotonic_s

SEED = 0
PARTS = ("console", "control", "gateway")
WARM_UP_S = 1.0
CREATORS = 8
VIEWS: Mapping[str, dict[str, str]] = {"fleet": {"view": "fleet"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to declare, and how long to measure."""

    components: int
    viewers: tuple[int, ...]
    duration_s: float
    rounds: int
    page_loads: int
    per_s: float = 50.0


SETTINGS = {
    "tiny": Setting(components=20, viewers=(1,), duration_s=3, rounds=1, page_loads=1),
    "short": Setting(components=1000, viewers=(1, 20), duration_s=12, rounds=2, page_loads=5),
    "full": Setting(components=1000, viewers=(1, 20), duration_s=30, rounds=7, page_loads=15),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of one measurement. `cores` has the processor time by part."""

    cores: Mapping[str, float]
    p50_ms: float
    p99_ms: float
    errors: int
    events_per_s: float
    snapshot_bytes: int


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    name = parser.parse_args().setting
    setting = SETTINGS[name]
    with (
        tempfile.TemporaryDirectory() as scratch,
        declare_components(Path(scratch), setting) as platform,
    ):
        rows = compare_viewers(platform, setting)
        print_table(f"{setting.components} components: added to none", rows)
        pages = page_loads(platform, setting.page_loads)
    print_table("Time to interactive, s", [pages])
    write_result("console", name, SEED, {"rows": rows, "interactive_s": pages})


@contextmanager
def declare_components(scratch: Path, setting: Setting) -> Iterator[Platform]:
    """A platform with that many components, one of which serves."""
    write_image_rule(scratch / "home")
    with Platform(scratch / "home") as platform:
        create_endpoint(platform)
        create_component(platform, COMPONENT, 1)
        wait_ready(platform, COMPONENT, 1, 120)
        client = platform.boto3("sagemaker", max_pool_connections=CREATORS)

        def create(number: int) -> None:
            client.create_inference_component(
                InferenceComponentName=f"component-{number:04}",
                EndpointName=FIRST,
                VariantName="AllTraffic",
                Specification={
                    "Container": {"Image": "drill"},
                    "ComputeResourceRequirements": {
                        "MinMemoryRequiredInMb": 128,
                        "NumberOfCpuCoresRequired": 16,
                    },
                },
                RuntimeConfig={"CopyCount": 1},
            )

        began_s = monotonic_s()
        with ThreadPoolExecutor(CREATORS) as pool:
            list(pool.map(create, range(setting.components - 1)))
        print(f"declared {setting.components} components in {monotonic_s() - began_s:.0f} s")
        time.sleep(10 if setting.components > 100 else 2)  # control settles them
        yield platform


def compare_viewers(platform: Platform, setting: Setting) -> list[dict[str, Any]]:
    """A row for each number of viewers."""
    rounds: list[dict[int, Figures]] = []
    numbers = (0, *setting.viewers)
    for number in range(setting.rounds):
        order = numbers if number % 2 == 0 else tuple(reversed(numbers))
        rounds.append({it: measure_viewers(platform, setting, it) for it in order})
    return [row(rounds, it) for it in numbers]


def row(rounds: Sequence[Mapping[int, Figures]], viewers: int) -> dict[str, Any]:
    """Medians over rounds of the difference between `viewers` viewers and none."""
    added = {
        part: statistics.median(it[viewers].cores[part] - it[0].cores[part] for it in rounds)
        for part in PARTS
    }
    mine = [it[viewers] for it in rounds]
    return {
        "viewers": viewers,
        **{f"{part} cores": cores for part, cores in added.items()},
        "cores each": sum(added.values()) / max(1, viewers),
        "p50": statistics.median(it[viewers].p50_ms / it[0].p50_ms for it in rounds),
        "p99": statistics.median(it[viewers].p99_ms / it[0].p99_ms for it in rounds),
        "p99 ms": statistics.median(it.p99_ms for it in mine),
        "events/s": statistics.median(it.events_per_s for it in mine),
        "first document KB": statistics.median(it.snapshot_bytes for it in mine)
        / 1000
        / max(1, viewers),
        "errors": sum(it.errors for it in mine),
        "control cores": statistics.median(it.cores["control"] for it in mine),
    }


def measure_viewers(platform: Platform, setting: Setting, viewers: int) -> Figures:
    """Measure the platform under load with that many viewers."""
    topics = [dict(VIEWS["fleet"])] * viewers
    with watching(platform, topics) as watched:
        if watched.failures:
            raise RuntimeError(f"views were refused: {watched.failures}")
        before, began_s = cpu_s_by_part(platform.home), monotonic_s()
        with changing(platform):
            outcome = send_load(platform, setting)
        took_s = monotonic_s() - began_s
        used = used_s(before, cpu_s_by_part(platform.home))
        return figures(outcome, watched, {it: used[it] / took_s for it in PARTS}, took_s)


def figures(
    outcome: Outcome, watched: Watched, cores: Mapping[str, float], took_s: float
) -> Figures:
    """The figures of one measurement."""
    kept = [it for it in outcome.answers if it.began_s >= WARM_UP_S]
    taken_ms = sorted((it.ended_s - it.began_s) * 1000 for it in kept)
    p50_ms, p99_ms = (taken_ms[int(len(taken_ms) * part)] for part in (0.5, 0.99))
    return Figures(
        cores=cores,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        errors=sum(it.status != 200 for it in outcome.answers),
        events_per_s=watched.num_events / took_s,
        snapshot_bytes=watched.snapshot_bytes,
    )


@contextmanager
def changing(platform: Platform) -> Iterator[None]:
    """Write a record each second for the block. A busy platform writes more often."""
    client, over = platform.boto3("sagemaker"), threading.Event()
    arn = client.describe_endpoint(EndpointName=FIRST)["EndpointArn"]

    def change() -> None:
        for number in itertools.count(1):
            if over.wait(1.0):
                return
            client.add_tags(ResourceArn=arn, Tags=[{"Key": "seconds", "Value": str(number)}])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def send_load(platform: Platform, setting: Setting) -> Outcome:
    """Send signed requests to the component that serves, at even times."""
    request = sign_request(platform)
    num = int((WARM_UP_S + setting.duration_s) * setting.per_s)
    due = [Due(at_s=number / setting.per_s, message=request) for number in range(num)]
    return uvloop.run(Generator(Plan(port=platform.port, requests=due)).run())


def sign_request(platform: Platform) -> bytes:
    """An invocation as botocore would send it."""
    path, body = f"/endpoints/{FIRST}/invocations", b'{"wait_s": 0}'
    headers = {
        "Content-Type": "application/json",
        "X-Amzn-SageMaker-Inference-Component": COMPONENT,
    }
    request = AWSRequest("POST", f"http://127.0.0.1:{platform.port}{path}", headers, body)
    keys = platform.credentials
    SigV4Auth(
        SigningKeys(keys.access_key_id, keys.secret_access_key), "sagemaker", keys.region
    ).add_auth(request)
    given = {"Host": f"127.0.0.1:{platform.port}", **dict(request.headers.items())}
    return message(path, given, body)


def page_loads(platform: Platform, times: int) -> dict[str, float]:
    """Seconds until a signed-in page shows the fleet and takes clicks, first and again."""
    cold: list[float] = []
    warm: list[float] = []
    with chromium() as browser:
        for _ in range(times):
            context = browser.new_context()
            page = context.new_page()
            page.goto(sign_in_link(platform))
            page.get_by_role("button", name="Sign out").wait_for()
            for found in (cold, warm):
                began_s = monotonic_s()
                page.goto(f"{platform.config.gateway_url}/console/fleet")
                page.locator(".totals dd").first.wait_for()
                page.get_by_label("Show").click()
                found.append(monotonic_s() - began_s)
            context.close()
    return {"first": statistics.median(cold), "again": statistics.median(warm), "worst": max(cold)}


if __name__ == "__main__":
    main()

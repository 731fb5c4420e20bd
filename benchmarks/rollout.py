"""Cost of data capture: the same model's endpoints with and without it, in one run.

A real platform at its defaults has two endpoints of an echo model server, and two of a small
scikit-learn model. One of each pair captures all requests and answers. Spool files are uploaded all
the while, mostly in a later load than the one that filled them. Rounds are short and alternate in
their order. The results are the median of their ratios, and the gateway's processor time, which is
valid on a busy machine too.

``python -m benchmarks.rollout [--setting tiny|short|full]``
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials
from tests.integration.capture_rig import ECHO_RULE, CapturedEndpoints, capture_of
from tests.integration.platform import Platform, until
from tests.integration.served_models import IMAGE, ROLE, Served

from benchmarks.aims import Finding, finding_rows
from benchmarks.gateway_load import JSON, run_load
from benchmarks.load import Load, Measured
from benchmarks.many_models_platform import runtime_in
from benchmarks.record import print_table, write_result
from benchmarks.stack import cpu_s
from hostelry.base.runtimes import VARIABLE, runtimes_folder
from hostelry.loadtest.requests import message

PLAIN, CAPTURED = "plain", "captured"
ROW = b"[[1.0, 2.0]]"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Rounds of each load, the seconds of a load, the sizes of the echo's body, and connections."""

    rounds: int
    duration_s: float
    payload_bytes: tuple[int, ...] = (1024, 16 * 1024)
    connections: tuple[int, ...] = (1, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A load: a model's endpoints, whose names begin with `prefix`, the body, the connections."""

    what: str
    prefix: str
    body: bytes
    connections: int
    duration_s: float


SETTINGS = {
    "tiny": Setting(rounds=1, duration_s=0.5, payload_bytes=(1024,), connections=(2,)),
    "short": Setting(rounds=12, duration_s=1.0),
    "full": Setting(rounds=30, duration_s=2.0),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--runtimes", type=Path, help="default: HOSTELRY_RUNTIMES_DIR, or yours")
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    runtimes = (arguments.runtimes or runtimes_folder(os.environ)).absolute()
    python = runtime_in(runtimes)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
        platform = Platform(home, environment=environment)
        platform.home.images.write_text(ECHO_RULE)
        with platform:
            ends = CapturedEndpoints(platform)
            served = Served(platform, Path(folder), python)
            container = {"Image": IMAGE, "ModelDataUrl": "s3://models/model.tar.gz"}
            served.sagemaker.create_model(
                ModelName="linear", ExecutionRoleArn=ROLE, PrimaryContainer=container
            )
            for prefix, model in (("echo", "mirror"), ("linear", "linear")):
                captures = {f"{prefix}-{PLAIN}": None, f"{prefix}-{CAPTURED}": capture_of()}
                ends.deploy(captures, model)
            measured = measure(ends, setting)
    for title, rows in measured.items():
        print_table(title, rows)
    write_result("rollout", arguments.setting, 0, measured)


def shapes(setting: Setting) -> list[Shape]:
    """All loads."""
    bodies = [
        (f"echo, {size // 1024} KiB", "echo", b'"' + b"x" * (size - 2) + b'"')
        for size in setting.payload_bytes
    ]
    return [
        Shape(
            what=f"{what}, {connections} connections",
            prefix=prefix,
            body=body,
            connections=connections,
            duration_s=setting.duration_s,
        )
        for what, prefix, body in (*bodies, ("scikit-learn", "linear", ROW))
        for connections in setting.connections
    ]


def measure(ends: CapturedEndpoints, setting: Setting) -> dict[str, list[Row]]:
    """All tables."""
    rounds: list[Row] = []
    findings: list[Finding] = []
    for shape in shapes(setting):
        found = [
            one_round(ends.platform, shape, is_reversed=bool(number % 2))
            for number in range(setting.rounds)
        ]
        rounds += [{"load": shape.what, **row} for row in found]
        findings += of_shape(shape.what, found)
    return {
        "With capture over without it": rounds,
        "Against the aims": finding_rows(findings),
        "Afterwards": [outcome(ends.platform, it) for it in ("echo", "linear")],
    }


def one_round(platform: Platform, shape: Shape, *, is_reversed: bool) -> Row:
    """Ratios of one pair of loads, and the figures of each load."""
    names = (CAPTURED, PLAIN) if is_reversed else (PLAIN, CAPTURED)
    found = {name: load_of(platform, shape, name) for name in names}
    (captured, captured_us), (plain, plain_us) = found[CAPTURED], found[PLAIN]
    return {
        "plain/s": plain.per_s,
        "captured/s": captured.per_s,
        "throughput": captured.per_s / plain.per_s,
        "p50": captured.p50_ms / plain.p50_ms,
        "p99": captured.p99_ms / plain.p99_ms,
        "plain CPU us": plain_us,
        "captured CPU us": captured_us,
    }


def load_of(platform: Platform, shape: Shape, name: str) -> tuple[Measured, float]:
    """Send a load. Returns its result, and the gateway's processor time of a request in us."""
    pids = [platform.pid(worker) for worker in platform.gateway_workers]
    before_s = sum(map(cpu_s, pids))
    request = sign_request(platform, f"{shape.prefix}-{name}", shape.body)
    load = Load(
        port=platform.port,
        requests=[request] * shape.connections,
        num_connections=shape.connections,
        duration_s=shape.duration_s,
    )
    found = run_load(load)
    if found.errors:
        raise RuntimeError(f"{found.errors} of {found.total} requests failed")
    used_s = sum(map(cpu_s, pids)) - before_s
    return found, used_s / found.total * 1e6


def sign_request(platform: Platform, name: str, body: bytes) -> bytes:
    """A whole signed request."""
    path, keys = f"/endpoints/{name}/invocations", platform.credentials
    url = f"http://127.0.0.1:{platform.port}{path}"
    request = AWSRequest("POST", url, {"Content-Type": JSON}, body)
    signing = SigningCredentials(keys.access_key_id, keys.secret_access_key)
    SigV4Auth(signing, "sagemaker", keys.region).add_auth(request)
    given = {"Host": f"127.0.0.1:{platform.port}", **dict(request.headers.items())}
    return message(path, given, body)


def of_shape(shape: str, rows: Sequence[Row]) -> list[Finding]:
    """Medians of the rounds, with their aims of 5 percent."""

    def median(column: str) -> float:
        return float(statistics.median(row[column] for row in rows))

    return [
        Finding(what=f"{shape}: throughput", value=median("throughput"), at_least=0.95),
        Finding(what=f"{shape}: p50", value=median("p50"), at_most=1.05),
        Finding(what=f"{shape}: p99", value=median("p99"), at_most=1.05),
        Finding(
            what=f"{shape}: CPU of the gateway a request",
            value=median("captured CPU us") / median("plain CPU us"),
            at_most=1.05,
        ),
    ]


def outcome(platform: Platform, prefix: str) -> Row:
    """The captured requests of a model so far, as control describes them."""

    def sums() -> list[Row]:
        answer = httpx.get(
            f"{platform.config.control_url}/internal/state",
            headers={"X-Hostelry-Key": platform.credentials.internal_key},
            trust_env=False,
        )
        name = f"{prefix}-{CAPTURED}"
        (found,) = [it for it in answer.json()["endpoints"] if it["name"] == name]
        variants: list[Row] = found["capture"]["variants"]
        return variants

    (found,) = until(sums, "the first report of captured requests")
    columns = ("captured", "dropped", "objects", "drop_cause", "upload_cause")
    return {"model": prefix, **{column: found[column] for column in columns}}


if __name__ == "__main__":
    main()

"""Time until a step of load is seen and new capacity answers, and the number of spurious acts.

Replayed: AWS's policies, Knative's and Ray Serve's rules and the responsive policy, on many seeds.
Live, with `--live`: a real platform with a tiny model, under the high-resolution policy and the
responsive one. The replay of the same load shows the error of its forecast.

``python -m benchmarks.scale_out [--setting short|full] [--smoke] [--live]``
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.aims import Finding, finding_rows
from benchmarks.record import print_table, write_result
from benchmarks.scale_out_replay import (
    CASES,
    HIGH_RESOLUTION,
    OURS,
    Size,
    figures,
    measure_replay,
)

SEED = 20261122
SIZES = {
    "smoke": Size(steps=2, hours=1, cases=1),
    "short": Size(steps=20, hours=4),
    "full": Size(steps=100, hours=40),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_out", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a few replays only")
    parser.add_argument("--live", action="store_true", help="a real platform too (minutes)")
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    measured = measure_replay(SIZES[name], SEED)
    print_table("Replayed: from the step to the act", measured["replayed"])
    if arguments.live:
        from benchmarks.scale_out_live import measure_live

        measured |= measure_live(SEED)
        print_table("Live, and the forecast of the replay", measured["live"])
        print_table("Live, from the decision to the first answer", measured["starts"])
    measured["findings"] = finding_rows(findings(measured))
    print_table("Against the aims", measured["findings"])
    write_result("scale_out", name, SEED, measured)


def findings(measured: Mapping[str, Any]) -> list[Finding]:
    """The measured values and their aims."""
    rows, first = measured["replayed"], CASES[0].name
    aws = figures(rows, first, HIGH_RESOLUTION)
    ours = figures(rows, first, OURS)
    found = [
        Finding(what="high resolution, slowest detection, s", value=aws["max s"], at_most=45.0),
        Finding(what="responsive, p50 s", value=ours["t0->t1 p50 s"], at_most=3.0),
        Finding(what="responsive, p95 s", value=ours["p95 s"], at_most=5.0),
        Finding(what="responsive, spurious acts an hour", value=ours["spurious/h"], at_most=1.0),
    ]
    found += [
        Finding(what=f"{row['what']}, p50 s", value=row["p50 s"], at_most=2.0)
        for row in measured.get("starts", ())
    ]
    bursty = [it for it in rows if "cv 3" in it["load"] and it["policy"] == OURS]
    for row in bursty:
        found.append(Finding(what="responsive at cv 3, p95 s", value=row["p95 s"], at_most=10.0))
        found.append(
            Finding(what="responsive at cv 3, spurious/h", value=row["spurious/h"], at_most=1.0)
        )
    return found


if __name__ == "__main__":
    main()

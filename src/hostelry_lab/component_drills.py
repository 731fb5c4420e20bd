"""Drills on a component that the drill creates: memory, crash loops, rolling updates."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.home.aws_client import aws_client
from hostelry_lab.context import DrillContext
from hostelry_lab.copy_drills import NO_MODEL
from hostelry_lab.fixture import DrillFixture, specification
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import wait_for
from hostelry_lab.outcome import DrillLimits, DrillOutcome, judge, served_calls

COPIES = 2
LIMIT_MB, TAKEN_MB = 256, 320
LIVES_S = 2.0
PAUSES = ("1", "2", "4")
LAST_LINE = "last words, line 30 of 30"
PAUSE = re.compile(r"started again in (\d+(?:\.\d+)?) s")
WATCH_S = 90.0
SETTLED_ANSWERS, SETTLED_S = 40, 5.0


def copy_oom(context: DrillContext) -> DrillOutcome:
    """A copy exceeds its component's memory limit."""
    platform = context.platform
    runtime = aws_client("sagemaker-runtime", platform.config, platform.credentials)
    with _fixture(context, memory_mb=(128, LIMIT_MB)) as (fixture, name):
        load = context.load(fixture.load_target(name))
        copies = fixture.copies_of(name)
        before = {it["id"]: it["pid"] for it in copies}
        ends = {it["id"]: it["last_end"] for it in copies}
        with load.flowing():
            load.answers(SETTLED_ANSWERS, WATCH_S)
            fault_at = monotonic_s()
            body = json.dumps({"take_bytes": TAKEN_MB * 1024 * 1024})
            ended = outcome_of(
                lambda: runtime.invoke_endpoint(
                    EndpointName=fixture.endpoint, InferenceComponentName=name, Body=body
                )["Body"].read()
            )
            context.progress(f"copy-oom: the call that took {TAKEN_MB} MB ended with {ended}")

            def out() -> dict[str, Any] | None:
                """The copy that ended, even if it has restarted."""
                copies = fixture.copies_of(name)
                return next((it for it in copies if it["last_end"] != ends.get(it["id"])), None)

            victim = wait_for(out, WATCH_S)
            seen_at = monotonic_s()

            def recovered() -> float | None:
                ready = [it for it in fixture.copies_of(name) if it["phase"] == "ready"]
                return monotonic_s() if len(ready) == COPIES else None

            back_at = wait_for(recovered, WATCH_S)
            load.answers(SETTLED_ANSWERS, WATCH_S)
        after = {it["id"]: it["pid"] for it in fixture.copies_of(name)}
        same = sum(1 for copy_id, pid in before.items() if after.get(copy_id) == pid)
        summary = served_calls(load.calls, fault_at)
        limits = DrillLimits(detected_s=10.0, all_served_s=10.0, errors=NO_MODEL)
        detected_s = None if victim is None else seen_at - fault_at
        missed = []
        reason = "" if victim is None else str(victim["last_end"]["cause"])
        if "memory" not in reason.lower():
            missed.append(f"the reason does not name memory: {reason or 'none'}")
        if same != COPIES - 1:
            missed.append(f"{same} of {COPIES - 1} other copies kept running")
        outcome = DrillOutcome(
            drill="copy-oom",
            target="only that copy ends, its reason names memory, the others keep answering",
            served=summary,
            detected_s=detected_s,
            back_s=None if back_at is None else back_at - fault_at,
            kept=f"{same} of {COPIES} copies kept running",
            missed=tuple(missed),
            details={"reason": reason},
        )
        return judge(outcome, limits)


def crash_at_start(context: DrillContext) -> DrillOutcome:
    """A component whose server exits at once."""
    with DrillFixture(context.platform).deploy() as fixture:
        load = context.load()
        with load.flowing():
            fault_at = monotonic_s()
            name = fixture.add(copies=1, environment={"DRILL_EXIT_AFTER_S": "0"})
            context.progress(f"crash-at-start: {name} exits at once")

            def failed() -> dict[str, Any] | None:
                shown = fixture.describe(name)
                return shown if shown["InferenceComponentStatus"] == "Failed" else None

            shown = wait_for(failed, WATCH_S) or {}
            failed_s = monotonic_s() - fault_at
        reason = str(shown.get("FailureReason", ""))
        summary = served_calls(load.calls, fault_at)
        missed = []
        if not shown:
            missed.append(f"not Failed within {WATCH_S:g} s")
        if LAST_LINE not in reason:
            missed.append(f"the reason lacks the last log lines: {reason}")
        outcome = DrillOutcome(
            drill="crash-at-start",
            target="Failed with the last log lines; no other client sees an error",
            served=summary,
            detected_s=failed_s if shown else None,
            kept="other components untouched",
            missed=tuple(missed),
            details={
                "log lines": str(len(re.findall("last words", reason))),
                "reason": reason.partition("\n")[0],
            },
        )
        return judge(outcome, DrillLimits())


def crash_loop(context: DrillContext) -> DrillOutcome:
    """A component whose server crashes repeatedly after it was ready."""
    with DrillFixture(context.platform).deploy() as fixture:
        load = context.load()
        with load.flowing():
            name = fixture.add(copies=1, environment={"DRILL_EXIT_AFTER_S": f"{LIVES_S:g}"})
            fault_at = monotonic_s()
            context.progress(f"crash-loop: {name} crashes {LIVES_S:g} s after each start")
            pauses: list[str] = []
            tail = ""

            def grown() -> bool | None:
                nonlocal tail
                for copy in fixture.copies_of(name):
                    found = PAUSE.search(copy["reason"] or "")
                    if found is not None and found[1] not in pauses:
                        pauses.append(found[1])
                        tail = str(copy.get("log_tail", ""))
                return True if len(pauses) >= len(PAUSES) else None

            wait_for(grown, WATCH_S)
            grown_s = monotonic_s() - fault_at

            def explained() -> str | None:
                reason = str(fixture.describe(name).get("FailureReason", ""))
                return reason if LAST_LINE in reason else None

            reason = wait_for(explained, SETTLED_S) or ""
        summary = served_calls(load.calls, fault_at)
        missed = []
        if tuple(pauses) != PAUSES:
            missed.append(f"pauses of {', '.join(pauses)} s, not of {', '.join(PAUSES)}")
        if LAST_LINE not in tail:
            missed.append("`hostelry status` does not show the last log lines while it waits")
        if not reason:
            missed.append("the FailureReason does not show the last log lines while it waits")
        outcome = DrillOutcome(
            drill="crash-loop",
            target="restarts after 0, 1, 2 ... 60 s, the log's end shown; others unaffected",
            served=summary,
            detected_s=grown_s,
            kept="other components untouched",
            missed=tuple(missed),
            details={
                "pauses": ", ".join(pauses),
                "log lines": str(len(tail.splitlines())),
                "reason": reason.partition("\n")[0],
            },
        )
        return judge(outcome, DrillLimits())


def rolling_update(context: DrillContext) -> DrillOutcome:
    """A component gets a new version under load, then a broken one."""
    with _fixture(context, environment={"DRILL_ANSWER": "old"}) as (fixture, name):
        load, load_target = context.load(fixture.load_target(name)), fixture.load_target(name)
        runtime = aws_client(
            "sagemaker-runtime", context.platform.config, context.platform.credentials
        )

        def answer() -> str:
            invoked = runtime.invoke_endpoint(
                EndpointName=load_target.endpoint,
                InferenceComponentName=name,
                Body=load_target.body,
            )
            return str(json.loads(invoked["Body"].read())["answer"])

        with load.flowing():
            load.answers(SETTLED_ANSWERS, WATCH_S)
            fault_at = monotonic_s()
            updated_s = _update(fixture, name, {"DRILL_ANSWER": "new"})
            news = {answer() for _ in range(2 * COPIES)}
            rolled_back_s = _update(
                fixture, name, {"DRILL_ANSWER": "broken", "DRILL_EXIT_AFTER_S": "0"}
            )
            reason = str(fixture.describe(name).get("FailureReason", ""))
            kept = {answer() for _ in range(2 * COPIES)}
            load.answers(SETTLED_ANSWERS, WATCH_S)
        summary = served_calls(load.calls, fault_at)
        missed = []
        if updated_s is None or news != {"new"}:
            missed.append(f"after the update the answers are {', '.join(sorted(news))}")
        if rolled_back_s is None or kept != {"new"}:
            missed.append(f"after the rollback the answers are {', '.join(sorted(kept))}")
        if not reason:
            missed.append("the update that was rolled back has no reason")
        outcome = DrillOutcome(
            drill="rolling-update",
            target="0 errors; a broken version is rolled back",
            served=summary,
            back_s=updated_s,
            kept=f"{COPIES} copies of the new version",
            missed=tuple(missed),
            details={
                "rollback": "never" if rolled_back_s is None else f"{rolled_back_s:.1f} s",
                "reason": reason.partition("\n")[0],
            },
        )
        return judge(outcome, DrillLimits())


def _update(fixture: DrillFixture, name: str, environment: dict[str, str]) -> float | None:
    """Update copy by copy. Returns the seconds until InService, or None if that never came."""
    asked_at = monotonic_s()
    fixture.sagemaker.update_inference_component(
        InferenceComponentName=name,
        Specification=specification(environment, (128, None), 60),
        DeploymentConfig={
            "RollingUpdatePolicy": {
                "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
                "WaitIntervalInSeconds": 0,
            }
        },
    )

    def done() -> float | None:
        status = fixture.describe(name)["InferenceComponentStatus"]
        return monotonic_s() - asked_at if status == "InService" else None

    return wait_for(done, WATCH_S)


@contextmanager
def _fixture(
    context: DrillContext,
    *,
    environment: dict[str, str] | None = None,
    memory_mb: tuple[int, int | None] = (128, None),
) -> Iterator[tuple[DrillFixture, str]]:
    """A fixture with one component that has its copies ready."""
    with DrillFixture(context.platform).deploy() as fixture:
        name = fixture.add(copies=COPIES, environment=environment, memory_mb=memory_mb)
        fixture.wait_ready(name, COPIES)
        yield fixture, name

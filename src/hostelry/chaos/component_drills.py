"""Drills of a component of the drill's own: memory, crash loops, rolling updates."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.chaos.copy_drills import NO_MODEL
from hostelry.chaos.load import client, outcome_of
from hostelry.chaos.outcome import Limits, Outcome, judged, served
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import wait_for
from hostelry.chaos.stage import Stage, specification

COPIES = 2
LIMIT_MB, TAKEN_MB = 256, 320
LIVES_S = 2.0
PAUSES = ("1", "2", "4")
LAST_LINE = "last words, line 30 of 30"
PAUSE = re.compile(r"started again in (\d+(?:\.\d+)?) s")
WATCH_S = 90.0
SETTLED_ANSWERS, SETTLED_S = 40, 5.0


def copy_oom(scene: Scene) -> Outcome:
    """A copy takes more memory than its component may."""
    platform = scene.platform
    runtime = client("sagemaker-runtime", platform.config, platform.credentials)
    with _stage(scene, memory_mb=(128, LIMIT_MB)) as (stage, name):
        load = scene.load(stage.aim(name))
        copies = stage.copies_of(name)
        before = {it["id"]: it["pid"] for it in copies}
        ends = {it["id"]: it["last_end"] for it in copies}
        with load.flowing():
            load.answers(SETTLED_ANSWERS, WATCH_S)
            fault_at = monotonic_s()
            body = json.dumps({"take_bytes": TAKEN_MB * 1024 * 1024})
            ended = outcome_of(
                lambda: runtime.invoke_endpoint(
                    EndpointName=stage.endpoint, InferenceComponentName=name, Body=body
                )["Body"].read()
            )
            scene.say(f"copy-oom: the call that took {TAKEN_MB} MB ended with {ended}")

            def out() -> dict[str, Any] | None:
                """The copy that ended, started again or not."""
                copies = stage.copies_of(name)
                return next((it for it in copies if it["last_end"] != ends.get(it["id"])), None)

            victim = wait_for(out, WATCH_S)
            seen_at = monotonic_s()

            def mended() -> float | None:
                ready = [it for it in stage.copies_of(name) if it["phase"] == "ready"]
                return monotonic_s() if len(ready) == COPIES else None

            back_at = wait_for(mended, WATCH_S)
            load.answers(SETTLED_ANSWERS, WATCH_S)
        after = {it["id"]: it["pid"] for it in stage.copies_of(name)}
        same = sum(1 for copy_id, pid in before.items() if after.get(copy_id) == pid)
        fared = served(load.calls, fault_at)
        limits = Limits(detected_s=10.0, all_served_s=10.0, errors=NO_MODEL)
        detected_s = None if victim is None else seen_at - fault_at
        missed = []
        reason = "" if victim is None else str(victim["last_end"]["cause"])
        if "memory" not in reason.lower():
            missed.append(f"the reason does not name memory: {reason or 'none'}")
        if same != COPIES - 1:
            missed.append(f"{same} of {COPIES - 1} other copies went on")
        outcome = Outcome(
            drill="copy-oom",
            target="only that copy ends, its reason names memory, the others answer on",
            served=fared,
            detected_s=detected_s,
            back_s=None if back_at is None else back_at - fault_at,
            kept=f"{same} of {COPIES} copies went on",
            missed=tuple(missed),
            details={"reason": reason},
        )
        return judged(outcome, limits)


def crash_at_start(scene: Scene) -> Outcome:
    """A component whose server exits at once."""
    with Stage(scene.platform).standing() as stage:
        load = scene.load()
        with load.flowing():
            fault_at = monotonic_s()
            name = stage.add(copies=1, environment={"DRILL_EXIT_AFTER_S": "0"})
            scene.say(f"crash-at-start: {name} exits at once")

            def failed() -> dict[str, Any] | None:
                shown = stage.described(name)
                return shown if shown["InferenceComponentStatus"] == "Failed" else None

            shown = wait_for(failed, WATCH_S) or {}
            failed_s = monotonic_s() - fault_at
        reason = str(shown.get("FailureReason", ""))
        fared = served(load.calls, fault_at)
        missed = []
        if not shown:
            missed.append(f"not Failed within {WATCH_S:g} s")
        if LAST_LINE not in reason:
            missed.append(f"the reason lacks the last log lines: {reason}")
        outcome = Outcome(
            drill="crash-at-start",
            target="Failed with the last log lines; nobody else sees an error",
            served=fared,
            detected_s=failed_s if shown else None,
            kept="nothing of others touched",
            missed=tuple(missed),
            details={
                "log lines": str(len(re.findall("last words", reason))),
                "reason": reason.partition("\n")[0],
            },
        )
        return judged(outcome, Limits())


def crash_loop(scene: Scene) -> Outcome:
    """A component whose server crashes again and again after it was ready."""
    with Stage(scene.platform).standing() as stage:
        load = scene.load()
        with load.flowing():
            name = stage.add(copies=1, environment={"DRILL_EXIT_AFTER_S": f"{LIVES_S:g}"})
            fault_at = monotonic_s()
            scene.say(f"crash-loop: {name} crashes {LIVES_S:g} s after each start")
            pauses: list[str] = []
            tail = ""

            def grown() -> bool | None:
                nonlocal tail
                for copy in stage.copies_of(name):
                    found = PAUSE.search(copy["reason"] or "")
                    if found is not None and found[1] not in pauses:
                        pauses.append(found[1])
                        tail = str(copy.get("log_tail", ""))
                return True if len(pauses) >= len(PAUSES) else None

            wait_for(grown, WATCH_S)
            grown_s = monotonic_s() - fault_at

            def explained() -> str | None:
                reason = str(stage.described(name).get("FailureReason", ""))
                return reason if LAST_LINE in reason else None

            reason = wait_for(explained, SETTLED_S) or ""
        fared = served(load.calls, fault_at)
        missed = []
        if tuple(pauses) != PAUSES:
            missed.append(f"pauses of {', '.join(pauses)} s, not of {', '.join(PAUSES)}")
        if LAST_LINE not in tail:
            missed.append("`hostelry status` does not show the last log lines while it waits")
        if not reason:
            missed.append("the FailureReason does not show the last log lines while it waits")
        outcome = Outcome(
            drill="crash-loop",
            target="again at once, then after 1, 2 ... 60 s, its log's end shown; none else harmed",
            served=fared,
            detected_s=grown_s,
            kept="nothing of others touched",
            missed=tuple(missed),
            details={
                "pauses": ", ".join(pauses),
                "log lines": str(len(tail.splitlines())),
                "reason": reason.partition("\n")[0],
            },
        )
        return judged(outcome, Limits())


def rolling_update(scene: Scene) -> Outcome:
    """A component gets a new version under load, then one that does not work."""
    with _stage(scene, environment={"DRILL_ANSWER": "old"}) as (stage, name):
        load, aim = scene.load(stage.aim(name)), stage.aim(name)
        runtime = client("sagemaker-runtime", scene.platform.config, scene.platform.credentials)

        def answer() -> str:
            said = runtime.invoke_endpoint(
                EndpointName=aim.endpoint, InferenceComponentName=name, Body=aim.body
            )
            return str(json.loads(said["Body"].read())["answer"])

        with load.flowing():
            load.answers(SETTLED_ANSWERS, WATCH_S)
            fault_at = monotonic_s()
            updated_s = _update(stage, name, {"DRILL_ANSWER": "new"})
            news = {answer() for _ in range(2 * COPIES)}
            rolled_back_s = _update(
                stage, name, {"DRILL_ANSWER": "broken", "DRILL_EXIT_AFTER_S": "0"}
            )
            reason = str(stage.described(name).get("FailureReason", ""))
            kept = {answer() for _ in range(2 * COPIES)}
            load.answers(SETTLED_ANSWERS, WATCH_S)
        fared = served(load.calls, fault_at)
        missed = []
        if updated_s is None or news != {"new"}:
            missed.append(f"after the update the answers are {', '.join(sorted(news))}")
        if rolled_back_s is None or kept != {"new"}:
            missed.append(f"after the rollback the answers are {', '.join(sorted(kept))}")
        if not reason:
            missed.append("the update that was rolled back has no reason")
        outcome = Outcome(
            drill="rolling-update",
            target="0 errors; a version that does not work is rolled back",
            served=fared,
            back_s=updated_s,
            kept=f"{COPIES} copies of the new version",
            missed=tuple(missed),
            details={
                "rollback": "never" if rolled_back_s is None else f"{rolled_back_s:.1f} s",
                "reason": reason.partition("\n")[0],
            },
        )
        return judged(outcome, Limits())


def _update(stage: Stage, name: str, environment: dict[str, str]) -> float | None:
    """Update copy by copy; the seconds it took until InService, None where it did not get there."""
    asked_at = monotonic_s()
    stage.sagemaker.update_inference_component(
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
        status = stage.described(name)["InferenceComponentStatus"]
        return monotonic_s() - asked_at if status == "InService" else None

    return wait_for(done, WATCH_S)


@contextmanager
def _stage(
    scene: Scene,
    *,
    environment: dict[str, str] | None = None,
    memory_mb: tuple[int, int | None] = (128, None),
) -> Iterator[tuple[Stage, str]]:
    """A stage with one component of some ready copies."""
    with Stage(scene.platform).standing() as stage:
        name = stage.add(copies=COPIES, environment=environment, memory_mb=memory_mb)
        stage.wait_ready(name, COPIES)
        yield stage, name

"""A batch of OpenAI's API, compared with the bare engine and with a transform job.

SmolLM2-135M-Instruct in bf16, its base and adapters of rank 16 in turn, prompts of mixed lengths,
all requests at once. The engine alone gets token ids in its process. The batch goes through
`/v1/files` and `/v1/batches` of a platform at its defaults, timed from its creation to its end. The
transform job has a record for each request, and is timed from the start of its separate instance.
Rounds alternate, one contestant computes at a time, and ratios are within a round.

``python -m benchmarks.llm_batches [--setting short|full] [--smoke] [--model FOLDER]``
"""

import argparse
import contextlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import openai
from tests.integration.platform import Platform

from benchmarks.aims import Finding, finding_rows
from benchmarks.contest import QUIET_CPUS
from benchmarks.live_component import COMPONENT, MODEL, running_component
from benchmarks.models import model_folder
from benchmarks.multi_lora import make_adapters
from benchmarks.peers import process_tree
from benchmarks.peers.completions import openai_body
from benchmarks.peers.contestant import Ask
from benchmarks.peers.worker import Setup, start_worker
from benchmarks.record import print_table, write_result
from hostelry.base.clock import monotonic_s
from hostelry.cli.control_requests import control_answer

SEED = 20261125
ENGINE, BATCH, JOB = "engine", "batch", "transform job"
URL: Literal["/v1/completions"] = "/v1/completions"
BUCKET = "rows"
THREADS = 2
LOOK_S = 0.2
PATIENCE_S = 600.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The load: requests, adapters besides the base, tokens of prompts and answers, and rounds."""

    requests: int = 240
    adapters: int = 5
    prompt_tokens: tuple[int, int] = (8, 160)
    new_tokens: int = 64
    rounds: int
    attempts: int = 3


SETTINGS = {
    "smoke": Setting(
        requests=12, adapters=2, prompt_tokens=(4, 12), new_tokens=4, rounds=1, attempts=1
    ),
    "short": Setting(rounds=3),
    "full": Setting(rounds=8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One contestant in one round. `others_cpus` is the number of CPUs busy with other work."""

    tokens: int
    wall_s: float
    cpu_s: float
    others_cpus: float

    @property
    def tokens_per_s(self) -> float:
        """New tokens of all requests, divided by the time of the whole load."""
        return self.tokens / self.wall_s

    @property
    def tokens_per_cpu_s(self) -> float:
        """New tokens in a second of processor time, which a busy machine affects less."""
        return self.tokens / max(self.cpu_s, 0.01)


Contestant = Callable[[Sequence[Ask]], Measured]


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm_batches", description=__doc__)
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, few requests, a round")
    parser.add_argument("--rounds", type=int, help="default: the setting's")
    parser.add_argument("--attempts", type=int, help="at a round that other processes disturb")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    given = parser.parse_args(argv)
    name = "smoke" if given.smoke else given.setting
    asked = {"rounds": given.rounds, "attempts": given.attempts}
    setting = replace(SETTINGS[name], **{key: it for key, it in asked.items() if it})
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(given.model, Path(scratch), tiny=given.smoke)
        vocabulary = range(5, 250) if given.smoke else range(1000, 40_000)
        measured = run(setting, model, Path(scratch), vocabulary)
    for title in ("speeds", "findings"):
        print_table(title, measured[title])
    write_result("llm_batches", name, SEED, measured)


def run(setting: Setting, model: Path, scratch: Path, vocabulary: range) -> dict[str, Any]:
    """Start all contestants, run the rounds, and return the results."""
    adapters = make_adapters(model, scratch / "adapters", setting.adapters, SEED)
    results: dict[str, list[Measured]] = {ENGINE: [], BATCH: [], JOB: []}
    with contextlib.ExitStack() as running:
        contestants = {
            ENGINE: running.enter_context(bare_engine(model, adapters, scratch)),
            **running.enter_context(platform_ways(model, adapters, scratch)),
        }
        for contestant in contestants.values():  # makes everything that a first request makes
            contestant([replace(it, max_tokens=4) for it in load(setting, vocabulary, "warm-up")])
        for number in range(setting.rounds):
            names = list(contestants)
            for name in names if number % 2 == 0 else reversed(names):
                found = quietest(contestants[name], setting, vocabulary, number)
                results[name].append(found)
                print(
                    f"round {number + 1}, {name}: {found.tokens_per_s:.1f} tokens/s, "
                    f"others' cpus {found.others_cpus:.2f}",
                    flush=True,
                )
    return {
        "speeds": [speed_row(name, found) for name, found in results.items()],
        "findings": finding_rows(list(findings(results))),
        "rounds": {
            name: [msgspec.to_builtins(it) for it in found] for name, found in results.items()
        },
        "threads": THREADS,
    }


def load(setting: Setting, vocabulary: range, occasion: str) -> list[Ask]:
    """The requests of a round: the base and each adapter in turn."""
    source = random.Random(f"{SEED} {occasion}")
    users = [None, *(f"adapter-{number:02}" for number in range(setting.adapters))]
    return [
        Ask(
            prompt=tuple(
                source.choice(vocabulary) for _ in range(source.randint(*setting.prompt_tokens))
            ),
            adapter=users[number % len(users)],
            max_tokens=setting.new_tokens,
        )
        for number in range(setting.requests)
    ]


def quietest(contestant: Contestant, setting: Setting, vocabulary: range, number: int) -> Measured:
    """The attempt that other processes disturbed least. A quiet attempt is the last one.

    Each attempt has different prompts, so that none finds another's work in a cache. All
    contestants of a round get the same prompts.
    """
    attempts: list[Measured] = []
    while len(attempts) < setting.attempts:
        occasion = f"round {number}, attempt {len(attempts)}"
        attempts.append(contestant(load(setting, vocabulary, occasion)))
        if attempts[-1].others_cpus <= QUIET_CPUS:
            break
    return min(attempts, key=lambda it: it.others_cpus)


def speed_row(name: str, found: Sequence[Measured]) -> Row:
    """One contestant's speeds."""
    speeds = [it.tokens_per_s for it in found]
    return {
        "way": name,
        "tokens/s": statistics.median(speeds),
        "lowest": min(speeds),
        "highest": max(speeds),
        "rounds": len(speeds),
        "tokens/cpu s": statistics.median(it.tokens_per_cpu_s for it in found),
        "others' cpus": statistics.median(it.others_cpus for it in found),
    }


def findings(results: dict[str, list[Measured]]) -> Iterator[Finding]:
    """Medians of the ratios within the rounds."""
    for over, under, aim in ((BATCH, ENGINE, 0.95), (BATCH, JOB, None), (JOB, ENGINE, None)):
        pairs = list(zip(results[over], results[under], strict=True))
        speed = statistics.median(one.tokens_per_s / other.tokens_per_s for one, other in pairs)
        work = statistics.median(
            one.tokens_per_cpu_s / other.tokens_per_cpu_s for one, other in pairs
        )
        yield Finding(what=f"{over} / {under}: tokens/s", value=speed, at_least=aim)
        yield Finding(what=f"{over} / {under}: tokens/cpu s", value=work)


@contextlib.contextmanager
def bare_engine(model: Path, adapters: dict[str, Path], scratch: Path) -> Iterator[Contestant]:
    """The engine in a separate process, paused while another contestant computes."""
    setup = Setup(
        model=str(model),
        adapters={name: str(folder) for name, folder in adapters.items()},
        num_threads=THREADS,
        options={},
    )
    worker = start_worker(ENGINE, "benchmarks.peers.engine_worker", setup, scratch / "engine.log")

    def answer(asks: Sequence[Ask]) -> Measured:
        outcome = worker.run(asks)
        worker.pause()
        return Measured(
            tokens=sum(it.num_tokens for it in outcome.answers),
            wall_s=outcome.wall_s,
            cpu_s=outcome.cpu_s,
            others_cpus=outcome.others_cpus,
        )

    try:
        yield answer
    finally:
        worker.stop()


@contextlib.contextmanager
def platform_ways(
    model: Path, adapters: dict[str, Path], scratch: Path
) -> Iterator[dict[str, Contestant]]:
    """A platform at its defaults, used through a batch and through a transform job."""
    with running_component(scratch, model, cpus=THREADS, adapters=adapters) as platform:
        environment = platform.env()
        key, url = environment["OPENAI_API_KEY"], environment["OPENAI_BASE_URL"]
        platform.boto3("s3").create_bucket(Bucket=BUCKET)
        with openai.OpenAI(api_key=key, base_url=url, max_retries=0) as client:
            yield {
                BATCH: lambda asks: through_batch(platform, client, asks),
                JOB: lambda asks: through_job(platform, asks),
            }


class Watch:
    """Processor time of a platform's processes, including processes that end meanwhile."""

    def __init__(self, platform: Platform) -> None:
        self._first = {pid: process_tree.own_cpu_s(pid) for pid in platform.processes()}
        self._latest = self._first
        self._busy_s, self._asker_s = process_tree.machine_busy_s(), time.process_time()
        self._began_s = monotonic_s()

    def look(self) -> None:
        """Note the time that each process has used so far, which is unknown after its end."""
        used = {pid: process_tree.own_cpu_s(pid) for pid in self._first}
        self._latest = {pid: max(it, self._latest[pid]) for pid, it in used.items()}

    def measured(self, wall_s: float) -> Measured:
        """Usage since the start of the watch, for a load that took `wall_s`, without its tokens."""
        self.look()
        own_s = sum(it - self._first[pid] for pid, it in self._latest.items())
        busy_s = process_tree.machine_busy_s() - self._busy_s
        asker_s = time.process_time() - self._asker_s
        others_s = max(0.0, busy_s - own_s - asker_s)
        others_cpus = others_s / (monotonic_s() - self._began_s)
        return Measured(tokens=0, wall_s=wall_s, cpu_s=own_s, others_cpus=others_cpus)


def through_batch(platform: Platform, client: openai.OpenAI, asks: Sequence[Ask]) -> Measured:
    """Measure a batch, whose file exists, from its creation to its end."""
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": URL,
            "body": openai_body(
                replace(ask, adapter=ask.adapter and f"{COMPONENT}:{ask.adapter}"), COMPONENT
            ),
        }
        for number, ask in enumerate(asks)
    ]
    file = client.files.create(file=("requests.jsonl", join_lines(lines)), purpose="batch")
    watch, began_s = Watch(platform), monotonic_s()
    batch = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    while batch.status in ("validating", "in_progress", "finalizing"):
        time.sleep(LOOK_S)
        batch = client.batches.retrieve(batch.id)
    found = watch.measured(monotonic_s() - began_s)
    if batch.status != "completed" or batch.error_file_id or not batch.output_file_id:
        raise RuntimeError(f"the batch did not answer every request: {batch}")
    answers = client.files.content(batch.output_file_id).text.splitlines()
    bodies = [json.loads(line)["response"]["body"] for line in answers]
    return replace(found, tokens=tokens_of(bodies, asks))


def through_job(platform: Platform, asks: Sequence[Ask]) -> Measured:
    """Measure a transform job from the moment that its instance serves to the job's end."""
    name = f"job-{time.time_ns()}"
    lines = [
        {**openai_body(replace(ask, adapter=None), COMPONENT), "adapters": ask.adapter or ""}
        for ask in asks
    ]
    s3, sagemaker = platform.boto3("s3"), platform.boto3("sagemaker")
    s3.put_object(Bucket=BUCKET, Key=f"{name}/in.jsonl", Body=join_lines(lines))
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{name}/in.jsonl"}
    sagemaker.create_transform_job(
        TransformJobName=name,
        ModelName=MODEL,
        TransformInput={
            "DataSource": {"S3DataSource": source},
            "ContentType": "application/json",
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": f"s3://{BUCKET}/{name}-out", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    job, watch = wait_for_job(platform, name)
    found = watch.measured(job["ended_at"] - job["started_at"])
    if job["status"] != "Completed":
        raise RuntimeError(f"job {name} is {job['status']}: {job['failure_reason']}")
    answers = s3.get_object(Bucket=BUCKET, Key=f"{name}-out/in.jsonl.out")["Body"].read()
    bodies = [json.loads(line) for line in answers.splitlines()]
    return replace(found, tokens=tokens_of(bodies, asks))


def wait_for_job(platform: Platform, name: str) -> tuple[Row, Watch]:
    """Control's description of the job once it is over, and a watch since its instance serves."""
    watch: Watch | None = None
    give_up_at_s = monotonic_s() + PATIENCE_S
    while monotonic_s() < give_up_at_s:
        state = control_answer(platform.config, platform.credentials, "/internal/state")
        (job,) = (it for it in state["transform_jobs"] if it["name"] == name)
        if watch is None and job["started_at"] is not None:
            watch = Watch(platform)
        if watch is not None:
            watch.look()
        if job["ended_at"] is not None:
            return job, watch or Watch(platform)
        time.sleep(LOOK_S)
    raise RuntimeError(f"job {name}: not over within {PATIENCE_S:g} s")


def tokens_of(bodies: Sequence[Row], asks: Sequence[Ask]) -> int:
    """The tokens of all answers. Raises RuntimeError if they are not as many as requested."""
    found = sum(it["usage"]["completion_tokens"] for it in bodies)
    asked = sum(ask.max_tokens for ask in asks)
    if (len(bodies), found) != (len(asks), asked):
        raise RuntimeError(f"{len(bodies)} answers with {found} tokens, not {asked} of {len(asks)}")
    return asked


def join_lines(lines: Sequence[Row]) -> bytes:
    """The lines as JSON lines."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


if __name__ == "__main__":
    main()

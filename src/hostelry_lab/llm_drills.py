"""Noisy-neighbour drills on a shared LLM: abuse of one adapter must not affect another tenant."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry_lab.context import DrillContext
from hostelry_lab.fixture import DrillFixture
from hostelry_lab.isolation_drills import AbuseReport, ask, beside_neighbours, flood_of
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import wait_for
from hostelry_lab.outcome import DrillOutcome
from hostelry_lab.tiny_llm import adapter_archive, write_model

WATCH_S = 60.0
FLOOD_CALLERS = 32
ARRAYS_NESTED = (450, 900, *range(970, 994, 3))  # near the JSON reader's limit
OBJECTS_NESTED = (450, *range(484, 499, 3))
ANSWER = ("{", "[")
REFUSED = ("ModelError 4", "ValidationError")
REGEX = "(?:[a-z0-9._]?){40}!"
PROMPT = "Hello"
NEIGHBOUR = {"inputs": PROMPT, "parameters": {"max_new_tokens": 4}}
FLOOD = {"inputs": PROMPT, "parameters": {"max_new_tokens": 64}}


def _build_poisoned_body(**parameters: str) -> bytes:
    """A request's body. The parameters are JSON already, since json could not write all of them."""
    members = ", ".join(f'"{name}": {value}' for name, value in parameters.items())
    return f'{{"inputs": "{PROMPT}", "parameters": {{"max_new_tokens": 48, {members}}}}}'.encode()


POISON = {
    "a stop token beyond 64 bits": _build_poisoned_body(stop_token_ids="[9223372036854775808]"),
    "a negative stop token": _build_poisoned_body(stop_token_ids="[-9223372036854775808]"),
    **{
        f"a schema nested {depth} deep": _build_poisoned_body(
            guided_json='{"type": "array", "items": ' * depth + '{"type": "integer"}' + "}" * depth
        )
        for depth in ARRAYS_NESTED
    },
    **{
        f"an object nested {depth} deep": _build_poisoned_body(
            guided_json='{"type": "object", "properties": {"a": ' * depth + "{}" + "}}" * depth
        )
        for depth in OBJECTS_NESTED
    },
    "a regex nested 990 deep": _build_poisoned_body(guided_regex=f'"{"(" * 990}a{")" * 990}"'),
    "a repetition penalty of 1e-46": _build_poisoned_body(repetition_penalty="1e-46"),
    "a repetition penalty of 1e-46, drawn": _build_poisoned_body(
        repetition_penalty="1e-46", do_sample="true"
    ),
    "a repetition penalty of 1e-38, drawn": _build_poisoned_body(
        repetition_penalty="1e-38", do_sample="true"
    ),
    "a temperature that is no number": _build_poisoned_body(temperature="NaN", do_sample="true"),
    "an endless temperature": _build_poisoned_body(temperature="1e400", do_sample="true"),
    "a temperature of 1e-300": _build_poisoned_body(temperature="1e-300", do_sample="true"),
    "a top_k beyond 64 bits": _build_poisoned_body(top_k="9223372036854775808", do_sample="true"),
    "a seed beyond 64 bits": _build_poisoned_body(seed="18446744073709551616", do_sample="true"),
    "a million answers": _build_poisoned_body(n="1000000", do_sample="true"),
    "a billion tokens": _build_poisoned_body(max_new_tokens="1000000000"),
    "a billion log-probabilities": _build_poisoned_body(details="true", top_n_tokens="1000000000"),
    "a bias of 1e308": _build_poisoned_body(logit_bias='{"5": 1e308}'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLlm:
    """An LLM with an adapter of the neighbour, and an adapter of the misbehaving tenant."""

    fixture: DrillFixture
    base: str
    good: str
    bad: str


def tenant_poison(context: DrillContext) -> DrillOutcome:
    """A tenant sends requests that are meant to crash the server."""
    with shared_llm(context) as llm:
        return beside_neighbours(
            context,
            "tenant-poison",
            llm.fixture,
            llm.fixture.load_target(llm.good, json.dumps(NEIGHBOUR).encode()),
            partial(_poison, llm),
        )


def _poison(shared: SharedLlm) -> AbuseReport:
    """Send each request in turn, and report those that ended the server or its engine."""
    report, answers = AbuseReport(), Counter[str]()
    well = shared.fixture.load_target(shared.bad, json.dumps(NEIGHBOUR).encode())
    for what, body in POISON.items():
        answer = ask(shared.fixture, shared.fixture.load_target(shared.bad, body))
        answered = answer.startswith(ANSWER)
        answers["answered" if answered else answer] += 1
        if not answered and not answer.startswith(REFUSED):
            report.missed.append(f"{what}: {answer}")
            wait_for(
                lambda: True if ask(shared.fixture, well).startswith(ANSWER) else None, WATCH_S
            )
    report.details["answers"] = ", ".join(f"{count} {name}" for name, count in answers.items())
    return report


def tenant_poison_adapter(context: DrillContext) -> DrillOutcome:
    """A tenant adds an adapter whose target_modules take exponential time to match."""

    def do(llm: SharedLlm) -> AbuseReport:
        report = AbuseReport()
        archive = upload(llm.fixture, "poison.tar.gz", adapter_archive(REGEX))
        name = llm.fixture.add_adapter(llm.base, archive)

        def failed() -> dict[str, Any] | None:
            shown = llm.fixture.describe(name)
            return shown if shown["InferenceComponentStatus"] == "Failed" else None

        shown = wait_for(failed, WATCH_S)
        if shown is None:
            report.missed.append(f"the adapter is not Failed within {WATCH_S:g} s")
            return report
        report.contained_at = monotonic_s()
        report.details["reason"] = str(shown.get("FailureReason", "")).partition("\n")[0]
        return report

    with shared_llm(context) as llm:
        load_target = llm.fixture.load_target(llm.good, json.dumps(NEIGHBOUR).encode())
        return beside_neighbours(
            context, "tenant-poison-adapter", llm.fixture, load_target, partial(do, llm)
        )


def tenant_flood_adapter(context: DrillContext) -> DrillOutcome:
    """A tenant invokes its adapter of a shared LLM without pause."""
    with shared_llm(context) as llm:
        flood = llm.fixture.load_target(llm.bad, json.dumps(FLOOD).encode())
        return beside_neighbours(
            context,
            "tenant-flood-adapter",
            llm.fixture,
            llm.fixture.load_target(llm.good, json.dumps(NEIGHBOUR).encode()),
            lambda: flood_of(context, flood, FLOOD_CALLERS),
        )


@contextmanager
def shared_llm(context: DrillContext) -> Iterator[SharedLlm]:
    """A tiny LLM with two adapters, ready for the block and removed after it."""
    with DrillFixture(context.platform).deploy() as fixture, _bucket(fixture):
        with tempfile.TemporaryDirectory() as scratch:
            write_model(Path(scratch))
            for file in Path(scratch).iterdir():
                upload(fixture, f"model/{file.name}", file.read_bytes())
        base = fixture.add_llm(f"s3://{fixture.endpoint}/model/")
        archive = upload(fixture, "adapter.tar.gz", adapter_archive(["q_proj"]))
        fixture.wait_ready(base, 1)
        good, bad = (fixture.add_adapter(base, archive) for _ in range(2))
        for name in (good, bad):
            fixture.wait_ready(name, 0)
        yield SharedLlm(fixture=fixture, base=base, good=good, bad=bad)


def upload(fixture: DrillFixture, key: str, content: bytes) -> str:
    """Put an object into the fixture's bucket, and return its URI."""
    fixture.s3.put_object(Bucket=fixture.endpoint, Key=key, Body=content)
    return f"s3://{fixture.endpoint}/{key}"


@contextmanager
def _bucket(fixture: DrillFixture) -> Iterator[None]:
    """A bucket with the name of the fixture's endpoint, removed with its objects afterwards."""
    s3 = fixture.s3
    s3.create_bucket(Bucket=fixture.endpoint)
    try:
        yield
    finally:
        for found in s3.list_objects_v2(Bucket=fixture.endpoint).get("Contents", ()):
            outcome_of(partial(s3.delete_object, Bucket=fixture.endpoint, Key=found["Key"]))
        outcome_of(partial(s3.delete_bucket, Bucket=fixture.endpoint))

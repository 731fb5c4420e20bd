"""Drills of one tenant of a shared LLM that does harm, beside an adapter of another on that LLM."""

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
from hostelry.chaos.isolation_drills import Deed, ask, beside_neighbours, flood_of
from hostelry.chaos.load import outcome_of
from hostelry.chaos.outcome import Outcome
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import wait_for
from hostelry.chaos.stage import Stage
from hostelry.chaos.tiny_llm import adapter_archive, write_model

WATCH_S = 60.0
FLOOD_CALLERS = 32
ARRAYS_NESTED = (450, 900, *range(970, 994, 3))  # near what the JSON reader refuses itself
OBJECTS_NESTED = (450, *range(484, 499, 3))
ANSWER = ("{", "[")
REFUSED = ("ModelError 4", "ValidationError")
REGEX = "(?:[a-z0-9._]?){40}!"
PROMPT = "Hello"
NEIGHBOUR = {"inputs": PROMPT, "parameters": {"max_new_tokens": 4}}
FLOOD = {"inputs": PROMPT, "parameters": {"max_new_tokens": 64}}


def _poisoned(**parameters: str) -> bytes:
    """A request's body; the parameters are JSON already: json itself would not write them all."""
    said = ", ".join(f'"{name}": {value}' for name, value in parameters.items())
    return f'{{"inputs": "{PROMPT}", "parameters": {{"max_new_tokens": 48, {said}}}}}'.encode()


POISON = {
    "a stop token beyond 64 bits": _poisoned(stop_token_ids="[9223372036854775808]"),
    "a negative stop token": _poisoned(stop_token_ids="[-9223372036854775808]"),
    **{
        f"a schema nested {depth} deep": _poisoned(
            guided_json='{"type": "array", "items": ' * depth + '{"type": "integer"}' + "}" * depth
        )
        for depth in ARRAYS_NESTED
    },
    **{
        f"an object nested {depth} deep": _poisoned(
            guided_json='{"type": "object", "properties": {"a": ' * depth + "{}" + "}}" * depth
        )
        for depth in OBJECTS_NESTED
    },
    "a regex nested 990 deep": _poisoned(guided_regex=f'"{"(" * 990}a{")" * 990}"'),
    "a repetition penalty of 1e-46": _poisoned(repetition_penalty="1e-46"),
    "a repetition penalty of 1e-46, drawn": _poisoned(repetition_penalty="1e-46", do_sample="true"),
    "a repetition penalty of 1e-38, drawn": _poisoned(repetition_penalty="1e-38", do_sample="true"),
    "a temperature that is no number": _poisoned(temperature="NaN", do_sample="true"),
    "an endless temperature": _poisoned(temperature="1e400", do_sample="true"),
    "a temperature of 1e-300": _poisoned(temperature="1e-300", do_sample="true"),
    "a top_k beyond 64 bits": _poisoned(top_k="9223372036854775808", do_sample="true"),
    "a seed beyond 64 bits": _poisoned(seed="18446744073709551616", do_sample="true"),
    "a million answers": _poisoned(n="1000000", do_sample="true"),
    "a billion tokens": _poisoned(max_new_tokens="1000000000"),
    "a billion log-probabilities": _poisoned(details="true", top_n_tokens="1000000000"),
    "a bias of 1e308": _poisoned(logit_bias='{"5": 1e308}'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """An LLM with an adapter of a neighbour, and one of the tenant."""

    stage: Stage
    base: str
    good: str
    bad: str


def tenant_poison(scene: Scene) -> Outcome:
    """A tenant sends requests that are made to end the server."""
    with shared_llm(scene) as it:
        return beside_neighbours(
            scene,
            "tenant-poison",
            it.stage,
            it.stage.aim(it.good, json.dumps(NEIGHBOUR).encode()),
            partial(_poison, it),
        )


def _poison(shared: Shared) -> Deed:
    """Each in turn; one that took the server, or the engine in it, with it is named."""
    deed, answers = Deed(), Counter[str]()
    well = shared.stage.aim(shared.bad, json.dumps(NEIGHBOUR).encode())
    for what, body in POISON.items():
        said = ask(shared.stage, shared.stage.aim(shared.bad, body))
        answered = said.startswith(ANSWER)
        answers["answered" if answered else said] += 1
        if not answered and not said.startswith(REFUSED):
            deed.missed.append(f"{what}: {said}")
            wait_for(lambda: True if ask(shared.stage, well).startswith(ANSWER) else None, WATCH_S)
    deed.details["answers"] = ", ".join(f"{count} {name}" for name, count in answers.items())
    return deed


def tenant_poison_adapter(scene: Scene) -> Outcome:
    """A tenant adds an adapter whose target_modules take exponential time to match."""

    def do(it: Shared) -> Deed:
        deed = Deed()
        archive = upload(it.stage, "poison.tar.gz", adapter_archive(REGEX))
        name = it.stage.add_adapter(it.base, archive)

        def failed() -> dict[str, Any] | None:
            shown = it.stage.described(name)
            return shown if shown["InferenceComponentStatus"] == "Failed" else None

        shown = wait_for(failed, WATCH_S)
        if shown is None:
            deed.missed.append(f"the adapter is not Failed within {WATCH_S:g} s")
            return deed
        deed.contained_at = monotonic_s()
        deed.details["reason"] = str(shown.get("FailureReason", "")).partition("\n")[0]
        return deed

    with shared_llm(scene) as it:
        aim = it.stage.aim(it.good, json.dumps(NEIGHBOUR).encode())
        return beside_neighbours(scene, "tenant-poison-adapter", it.stage, aim, partial(do, it))


def tenant_flood_adapter(scene: Scene) -> Outcome:
    """A tenant invokes its adapter of a shared LLM without pause."""
    with shared_llm(scene) as it:
        flood = it.stage.aim(it.bad, json.dumps(FLOOD).encode())
        return beside_neighbours(
            scene,
            "tenant-flood-adapter",
            it.stage,
            it.stage.aim(it.good, json.dumps(NEIGHBOUR).encode()),
            lambda: flood_of(scene, flood, FLOOD_CALLERS),
        )


@contextmanager
def shared_llm(scene: Scene) -> Iterator[Shared]:
    """A tiny LLM of the drill's own with two adapters, ready; nothing is left of it after."""
    with Stage(scene.platform).standing() as stage, _bucket(stage):
        with tempfile.TemporaryDirectory() as scratch:
            write_model(Path(scratch))
            for file in Path(scratch).iterdir():
                upload(stage, f"model/{file.name}", file.read_bytes())
        base = stage.add_llm(f"s3://{stage.endpoint}/model/")
        archive = upload(stage, "adapter.tar.gz", adapter_archive(["q_proj"]))
        stage.wait_ready(base, 1)
        good, bad = (stage.add_adapter(base, archive) for _ in range(2))
        for name in (good, bad):
            stage.wait_ready(name, 0)
        yield Shared(stage=stage, base=base, good=good, bad=bad)


def upload(stage: Stage, key: str, content: bytes) -> str:
    """Put an object into the stage's bucket; where it is."""
    stage.s3.put_object(Bucket=stage.endpoint, Key=key, Body=content)
    return f"s3://{stage.endpoint}/{key}"


@contextmanager
def _bucket(stage: Stage) -> Iterator[None]:
    """A bucket named as the stage's endpoint for the block; removed with all that is in it."""
    s3 = stage.s3
    s3.create_bucket(Bucket=stage.endpoint)
    try:
        yield
    finally:
        for found in s3.list_objects_v2(Bucket=stage.endpoint).get("Contents", ()):
            outcome_of(partial(s3.delete_object, Bucket=stage.endpoint, Key=found["Key"]))
        outcome_of(partial(s3.delete_bucket, Bucket=stage.endpoint))

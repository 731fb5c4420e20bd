"""What different adapters in one batch cost: the engine beside transformers + PEFT, in one run.

Sixteen requests on SmolLM2-135M-Instruct in bf16, with no adapter, with one, and with sixteen
different ones (rank 16, all seven linear targets, random weights). Both run the same prompts to the
same number of greedy tokens on the same threads, in turns; the median of the repeats counts.

``python -m benchmarks.multi_lora [--short | --setting tiny|short|full]``
"""

import argparse
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from tests.models import random_adapter
from transformers import AutoModelForCausalLM

from benchmarks.record import print_table, write_result
from hostelry.cli.demo_model import demo_model_folder
from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.request import Request, SamplingParams

SEED = 20261121
RANK = 16
FIRST_TOKEN, LAST_TOKEN = 1000, 40000  # of random prompts: plain words


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much to generate and how often."""

    batch_size: int
    prompt_tokens: int
    new_tokens: int
    repeats: int


SETTINGS = {
    "tiny": Setting(batch_size=2, prompt_tokens=8, new_tokens=4, repeats=1),
    "short": Setting(batch_size=16, prompt_tokens=32, new_tokens=32, repeats=2),
    "full": Setting(batch_size=16, prompt_tokens=32, new_tokens=64, repeats=5),
}

Run = Callable[[Sequence[str | None]], list[list[int]]]  # adapters of the requests -> new tokens


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi_lora", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument(
        "--short", action="store_const", const="short", dest="setting", help="as --setting short"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    setting = SETTINGS[arguments.setting]
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(setting, Path(scratch), arguments.threads, arguments.seed)
    print_table(f"Tokens/s, batch of {setting.batch_size}, {arguments.threads} threads", rows)
    measured = {"tokens_per_s": rows, "threads": arguments.threads, "torch": str(torch.__version__)}
    write_result("multi_lora", arguments.setting, arguments.seed, measured)


def measure(setting: Setting, scratch: Path, threads: int, seed: int) -> list[dict[str, Any]]:
    """A row for each use of adapters."""
    model = demo_model_folder()
    names = [f"adapter-{number:02}" for number in range(setting.batch_size)]
    folders = {
        name: random_adapter(
            scratch / name, model, RANK, seed=seed + number, std=0.02, dtype="bfloat16"
        )
        for number, name in enumerate(names)
    }
    prompts = random_prompts(setting, seed)
    ours = engine_runner(model, folders, prompts, setting, threads)
    peft, plain = peft_runners(model, folders, prompts, setting, threads)
    cases: list[tuple[str, Sequence[str | None]]] = [
        ("no adapter", [None] * setting.batch_size),
        ("one adapter", [names[0]] * setting.batch_size),
        (f"{setting.batch_size} different adapters", names),
    ]
    rows = []
    for case, adapters in cases:
        runs = {"engine": ours, "PEFT": peft}
        if adapters[0] is None:
            runs["transformers"] = plain
        rows.append(compare(case, runs, adapters, setting))
        print(f"{case}: done", flush=True)
    base = rows[0]["engine"]
    return [{**row, "of engine's base": row["engine"] / base} for row in rows]


def compare(
    case: str, runs: dict[str, Run], adapters: Sequence[str | None], setting: Setting
) -> dict[str, Any]:
    """Median tokens/s of each, run in turns after one round that does not count."""
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    tokens: dict[str, list[list[int]]] = {}
    for turn in range(setting.repeats + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            tokens[name] = run(adapters)
            duration_s = time.perf_counter() - started
            if turn > 0:
                speeds[name].append(sum(map(len, tokens[name])) / duration_s)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    plain = medians.get("transformers")
    return {
        "case": case,
        "engine": medians["engine"],
        "PEFT": medians["PEFT"],
        "ratio to PEFT": medians["engine"] / medians["PEFT"],
        "transformers": plain if plain is not None else "-",
        "first tokens equal": f"{num_equal(tokens)}/{len(adapters)}",
    }


def num_equal(tokens: dict[str, list[list[int]]]) -> int:
    """Requests whose first token is the same; later ones differ by rounding, which bf16 keeps."""
    pairs = zip(tokens["engine"], tokens["PEFT"], strict=True)
    return sum(ours[0] == theirs[0] for ours, theirs in pairs)


def random_prompts(setting: Setting, seed: int) -> list[list[int]]:
    """Token ids of one length, so that the peer needs no padding."""
    source = random.Random(seed)
    return [
        [source.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(setting.prompt_tokens)]
        for _ in range(setting.batch_size)
    ]


def engine_runner(
    model: Path, folders: dict[str, Path], prompts: list[list[int]], setting: Setting, threads: int
) -> Run:
    """The engine, every adapter loaded."""
    engine = Engine.load(model, EngineConfig(dtype="bf16", num_threads=threads))
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    sampling = SamplingParams(max_new_tokens=setting.new_tokens, ignore_eos=True)

    def run(adapters: Sequence[str | None]) -> list[list[int]]:
        for number, (prompt, adapter) in enumerate(zip(prompts, adapters, strict=True)):
            engine.add(
                Request(
                    id=str(number),
                    prompt_token_ids=tuple(prompt),
                    sampling=sampling,
                    adapter=adapter,
                )
            )
        tokens: list[list[int]] = [[] for _ in prompts]
        while engine.has_work:
            for output in engine.step():
                if output.token_id is None:
                    raise RuntimeError(output.error)
                tokens[int(output.request_id)].append(output.token_id)
        return tokens

    return run


def peft_runners(
    model: Path, folders: dict[str, Path], prompts: list[list[int]], setting: Setting, threads: int
) -> tuple[Run, Run]:
    """PEFT's mixed batch with every adapter loaded, and transformers without PEFT."""
    torch.set_num_threads(threads)
    plain: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    wrapped: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    plain.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, folder in folders.items():
            if isinstance(wrapped, PeftModel):
                wrapped.load_adapter(str(folder), name)
            else:
                wrapped = PeftModel.from_pretrained(wrapped, str(folder), name)
    wrapped.eval()
    ids = torch.tensor(prompts)

    def generate(peer: Any, **options: Any) -> list[list[int]]:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokens = peer.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=setting.new_tokens,
                min_new_tokens=setting.new_tokens,
                do_sample=False,
                **options,
            )
        continued: list[list[int]] = tokens[:, ids.shape[1] :].tolist()
        return continued

    def run_wrapped(adapters: Sequence[str | None]) -> list[list[int]]:
        return generate(wrapped, adapter_names=[name or "__base__" for name in adapters])

    def run_plain(adapters: Sequence[str | None]) -> list[list[int]]:
        return generate(plain)

    return run_wrapped, run_plain


if __name__ == "__main__":
    main()

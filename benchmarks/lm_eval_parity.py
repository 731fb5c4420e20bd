"""lm-eval over the server's /v1/completions and lm-eval with transformers give the same numbers.

The two tasks are made on the spot: multiple choice (log-likelihoods of answers) and the perplexity
of documents longer than the model's window. Nothing reaches the network. lm-eval is large, and runs
in a separate environment:

    python -m venv ENV && ENV/bin/pip install "lm-eval[api,hf]==0.4.13" peft
    python -m benchmarks.lm_eval_parity --lm-eval ENV/bin/python

Fails if a log-likelihood differs by more than `--tolerance` or an answer is chosen differently.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.integration.lmi_rig import serving
from tests.models import random_adapter

from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result

CHOICES, DOCUMENTS = "hostelry_choices", "hostelry_documents"
ADAPTER = "parity"
WINDOW = 64  # tokens. Documents are longer, so that each is scored in several windows
WORDS = "the a sea ship storm north harbour sail rope crew island night star wind falls reads and"
SUBJECTS = ("sky", "grass", "snow", "coal", "blood", "sun", "sea", "night")
COLOURS = ("blue", "green", "white", "black", "red", "yellow")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

Samples = Mapping[str, Sequence[float]]


def main() -> None:
    """Run both and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lm-eval", type=Path, required=True, help="python that has lm-eval")
    parser.add_argument("--model", type=Path, help="folder of the model; the demo model")
    parser.add_argument("--tiny", action="store_true", help="a random tiny model")
    parser.add_argument(
        "--limit", type=int, default=24, help="questions, and a third as many texts"
    )
    parser.add_argument("--tolerance", type=float, default=2e-3, help="of a log-likelihood")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostelry-lm-eval-") as scratch:
        rows = compare(given, Path(scratch))
    print_table("lm-eval: the server and transformers", rows)
    write_result("lm_eval_parity", "fp32, one engine", given.seed, {"rows": rows})
    worst = max(row["largest difference"] for row in rows)
    if worst > given.tolerance:
        raise SystemExit(f"a log-likelihood differs by {worst}; at most {given.tolerance}")


def compare(given: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """A row for each task, without and with an adapter."""
    model = model_folder(given.model, scratch, tiny=given.tiny)
    tasks = write_tasks(scratch / "tasks", given.limit, random.Random(given.seed))
    adapter = random_adapter(scratch / ADAPTER, model, rank=8, seed=given.seed, std=0.02)
    rows = []
    env = {"OPTION_ENABLE_LORA": "true", "OPTION_SERVED_MODEL_NAME": "base"}
    with serving(model, scratch / "server.log", **env) as server, server.client() as client:
        client.post("/adapters", params={"name": ADAPTER, "src": str(adapter)}).raise_for_status()
        for name in ("base", ADAPTER):
            peft = "" if name == "base" else f",peft={adapter}"
            over_http = evaluate_model(
                given.lm_eval, tasks, scratch / f"http-{name}", "local-completions",
                f"model={name},base_url={server.url}/v1/completions,num_concurrent=2,"
                f"tokenizer_backend=huggingface,tokenizer={model},max_length={WINDOW + 2}",
            )  # fmt: skip
            by_transformers = evaluate_model(
                given.lm_eval, tasks, scratch / f"hf-{name}", "hf",
                f"pretrained={model},dtype=float32,max_length={WINDOW}{peft}",
            )  # fmt: skip
            rows += [
                row(task, name, over_http[task], by_transformers[task])
                for task in (CHOICES, DOCUMENTS)
            ]
    return rows


def row(
    task: str,
    model: str,
    own: tuple[Mapping[str, float], Samples],
    other: tuple[Mapping[str, float], Samples],
) -> dict[str, Any]:
    """Metrics of both, and the largest difference of a log-likelihood."""
    (own_metrics, own_samples), (other_metrics, other_samples) = own, other
    if own_samples.keys() != other_samples.keys():
        raise SystemExit(f"{task}: the two runs have other samples")
    pairs = [
        pair
        for key, values in own_samples.items()
        for pair in zip(values, other_samples[key], strict=True)
    ]
    metric = "acc,none" if task == CHOICES else "word_perplexity,none"
    return {
        "task": task,
        "model": model,
        "metric": metric.split(",")[0],
        "server": own_metrics[metric],
        "transformers": other_metrics[metric],
        "log-likelihoods": len(pairs),
        "largest difference": max(abs(one - two) for one, two in pairs),
    }


def evaluate_model(
    python: Path, tasks: Path, output: Path, kind: str, arguments: str
) -> dict[str, tuple[Mapping[str, float], Samples]]:
    """Metrics and log-likelihoods of each task by one run of lm-eval."""
    command = [
        str(python), "-m", "lm_eval", "run", "--model", kind, "--model_args", arguments,
        "--tasks", CHOICES, DOCUMENTS, "--include_path", str(tasks), "--batch_size", "4",
        "--output_path", str(output), "--log_samples",
    ]  # fmt: skip
    ended = subprocess.run(
        command, env={**os.environ, **OFFLINE}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"lm-eval ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
    (results,) = output.rglob("results_*.json")
    metrics = json.loads(results.read_text())["results"]
    found = {}
    for task in (CHOICES, DOCUMENTS):
        (lines,) = output.rglob(f"samples_{task}_*.jsonl")
        samples = [json.loads(line) for line in lines.read_text().splitlines()]
        found[task] = metrics[task], {str(it["doc_id"]): likelihoods(it) for it in samples}
    return found


def likelihoods(sample: Mapping[str, Any]) -> list[float]:
    """The log-likelihoods of a sample's requests, and for a choice also whether it is greedy."""
    values: list[float] = []
    for response in sample["resps"]:
        answer = response[0]
        if isinstance(answer, list):
            logprob, is_greedy = answer
            values += [float(logprob), float(str(is_greedy) == "True")]
        else:
            values.append(float(answer))
    return values


def write_tasks(folder: Path, count: int, chance: random.Random) -> Path:
    """Write two tasks over files of JSON lines, and return the folder of their definitions."""
    folder.mkdir()
    questions = [
        {"subject": chance.choice(SUBJECTS), "choices": colours, "gold": number % len(colours)}
        for number, colours in enumerate(
            chance.sample(COLOURS, chance.randint(2, 5)) for _ in range(count)
        )
    ]
    texts = [
        {"page": " ".join(chance.choices(WORDS.split(), k=chance.randint(20, 160)))}
        for _ in range(max(1, count // 3))
    ]
    for name, lines in ((CHOICES, questions), (DOCUMENTS, texts)):
        content = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(content)
    shared = "dataset_path: json\ntest_split: train\ndataset_kwargs:\n  data_files:\n    train: "
    (folder / "choices.yaml").write_text(
        f"task: {CHOICES}\n{shared}{folder / CHOICES}.jsonl\n"
        "output_type: multiple_choice\n"
        "doc_to_text: 'The colour of the {{subject}} is'\n"
        "doc_to_choice: '{{choices}}'\ndoc_to_target: gold\n"
        "metric_list:\n  - metric: acc\n  - metric: acc_norm\n"
    )
    (folder / "documents.yaml").write_text(
        f"task: {DOCUMENTS}\n{shared}{folder / DOCUMENTS}.jsonl\n"
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{page}}'\n"
        "metric_list:\n  - metric: word_perplexity\n  - metric: byte_perplexity\n"
        "  - metric: bits_per_byte\n"
    )
    return folder


if __name__ == "__main__":
    main()

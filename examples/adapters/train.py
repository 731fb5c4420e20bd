"""Train the three demo adapters: Spanish, French, and a pirate.

    python examples/adapters/train.py [--output examples/adapters] [--steps 160]

Each is a PEFT LoRA adapter of rank 8 on q_proj and v_proj, under one megabyte in bf16, trained on
dialogues.jsonl for about five minutes on two cores. The weights in this folder were made by this
script; they know their dialogues by heart and, the base being small, little else in Spanish or
French.
Needs `pip install 'hostelry[demo,train]'`.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from hostelry.cli.demo import demo_model_folder

HERE = Path(__file__).resolve().parent
STYLES = ("es", "fr", "pirate")
RANK = 8
BATCH = 8
LEARNING_RATE = 4e-3
IGNORED = -100  # the label that cross entropy skips


def examples(tokenizer: Any, style: str) -> list[tuple[list[int], list[int]]]:
    """Token ids and labels of every dialogue; only the answer's tokens are learned."""
    rows = []
    for line in (HERE / "dialogues.jsonl").read_text().splitlines():
        dialogue = json.loads(line)
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": dialogue["user"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        prompt_ids = tokenizer.encode(prompt)
        answer_ids = [*tokenizer.encode(dialogue[style]), tokenizer.eos_token_id]
        rows.append((prompt_ids + answer_ids, [IGNORED] * len(prompt_ids) + answer_ids))
    return rows


def padded(rows: list[tuple[list[int], list[int]]], pad_id: int) -> dict[str, torch.Tensor]:
    """One batch, right-padded: input_ids, attention_mask and labels of shape (rows, longest)."""
    longest = max(len(ids) for ids, _ in rows)
    return {
        "input_ids": torch.tensor([ids + [pad_id] * (longest - len(ids)) for ids, _ in rows]),
        "attention_mask": torch.tensor(
            [[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows]
        ),
        "labels": torch.tensor(
            [labels + [IGNORED] * (longest - len(labels)) for _, labels in rows]
        ),
    }


def train(style: str, output: Path, steps: int) -> None:
    """Train one adapter and save it in PEFT's format under `output`/`style`."""
    torch.manual_seed(0)
    shuffle = random.Random(0)
    folder = demo_model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = get_peft_model(
        base,
        LoraConfig(
            r=RANK,
            lora_alpha=2 * RANK,
            target_modules=["q_proj", "v_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    rows = examples(tokenizer, style)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for step in range(steps):
        batch = padded(shuffle.sample(rows, BATCH), tokenizer.pad_token_id)
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == steps - 1:
            print(f"{style}: step {step:3d}  loss {loss.item():.3f}", flush=True)
    model.to(torch.bfloat16)
    model.peft_config["default"].base_model_name_or_path = "SmolLM2-135M-Instruct"
    model.save_pretrained(output / style)
    (output / style / "README.md").unlink(missing_ok=True)  # a template that PEFT leaves unfilled


def main() -> None:
    """Train every style."""
    parser = argparse.ArgumentParser(description="Train the three demo adapters.")
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=160)
    arguments = parser.parse_args()
    for style in STYLES:
        train(style, arguments.output, arguments.steps)


if __name__ == "__main__":
    main()

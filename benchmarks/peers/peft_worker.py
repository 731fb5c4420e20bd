"""transformers + PEFT: `generate` over one batch in which each row has its adapter."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, StoppingCriteria

from benchmarks.peers.contestant import Answer, Ask, Outcome
from benchmarks.peers.worker import Answering, Setup, work

BASE = "__base__"  # PEFT's name for a row without an adapter


class TokenClock(StoppingCriteria):
    """Notes when each token was chosen, and stops nothing."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        """Called after every token."""
        self.times_s.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def prepare(setup: Setup) -> Answering:
    """The model with every adapter loaded. The option ``plain`` leaves PEFT out altogether."""
    torch.set_num_threads(setup.num_threads)
    dtype = getattr(torch, setup.options.get("dtype", "bfloat16"))
    model: Any = AutoModelForCausalLM.from_pretrained(setup.model, dtype=dtype)
    model.eval()
    if not setup.options.get("plain"):
        model = with_adapters(model, setup.adapters)

    def answer(asks: Sequence[Ask]) -> Outcome:
        options = {}
        if isinstance(model, PeftModel):
            options["adapter_names"] = [ask.adapter or BASE for ask in asks]
        return generate(model, asks, **options)

    return answer


def with_adapters(model: Any, adapters: dict[str, str]) -> Any:
    """`model` wrapped by PEFT."""
    for name, folder in adapters.items():
        if isinstance(model, PeftModel):
            model.load_adapter(folder, name)
        else:
            model = PeftModel.from_pretrained(model, folder, name)
    return model.eval()


def generate(model: Any, asks: Sequence[Ask], **options: Any) -> Outcome:
    """One call of `generate`. All prompts have the same length, so that nothing is padded."""
    clock = TokenClock()
    num_new = asks[0].max_tokens
    ids = torch.tensor([ask.prompt for ask in asks])
    start_s = time.perf_counter()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokens = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            stopping_criteria=[clock],
            **options,
        )
    wall_s = time.perf_counter() - start_s
    arrivals_s = tuple(at_s - start_s for at_s in clock.times_s)
    rows: list[list[int]] = tokens[:, ids.shape[1] :].tolist()
    answers = tuple(
        Answer(num_tokens=len(row), arrivals_s=arrivals_s, text=" ".join(map(str, row)))
        for row in rows
    )
    return Outcome(wall_s=wall_s, answers=answers)


if __name__ == "__main__":
    work(prepare)

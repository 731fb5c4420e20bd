"""transformers and PEFT in fp32 on a CPU, as a reference for the engine's answers."""

import copy
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import torch
from msgspec.structs import replace

from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.request import Output, Request, SamplingParams
from hostelry.engine.runner.rows import SequenceRows, build_batch

WEIGHTS = "model.safetensors"
PROMPTS = (
    (5, 9, 33, 12, 77, 120, 4),
    (150, 3, 3, 8),
    (61,),
    tuple(range(20, 60)),
    (7, 188, 42, 99, 13, 13, 101, 56, 34, 91, 17),
)


def reference_model(folder: Path, adapters: dict[str, Path] | None = None) -> Any:
    """The model in fp32, with these adapters, if any."""
    from peft import PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages warn about each other
        model = copy.deepcopy(_base_model(folder, (folder / WEIGHTS).stat().st_mtime_ns))
        for name, path in (adapters or {}).items():
            if isinstance(model, PeftModel):
                model.load_adapter(path, name)
            else:
                model = PeftModel.from_pretrained(model, path, name)
    return model


@lru_cache(maxsize=2)
def _base_model(folder: Path, _written_ns: int) -> Any:
    """The model as `transformers` loads it. Copying it takes a tenth of the time."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


@torch.inference_mode()
def reference_logits(model: Any, prompt: Sequence[int], adapter: str | None) -> torch.Tensor:
    """The logits after the prompt's last token."""
    ids = torch.tensor([list(prompt)])
    if adapter is None and not hasattr(model, "peft_config"):
        logits = model(input_ids=ids).logits
    elif adapter is None:
        with model.disable_adapter():
            logits = model(input_ids=ids).logits
    else:
        model.set_adapter(adapter)
        logits = model(input_ids=ids).logits
    result: torch.Tensor = logits[0, -1].float()
    return result


def reference_tokens(
    model: Any, prompt: Sequence[int], adapter: str | None, count: int
) -> list[int]:
    """The greedy continuation. It ignores end tokens, and computes every token from the start."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(reference_logits(model, tokens, adapter).argmax()))
    return tokens[len(prompt) :]


@torch.inference_mode()
def all_reference_tokens(
    model: Any, prompts: Sequence[Sequence[int]], adapter: str | None, count: int
) -> list[list[int]]:
    """`reference_tokens` of each prompt. Short prompts are padded at the end, unseen by others."""
    texts = [list(it) for it in prompts]
    with model.disable_adapter() if adapter is None else nullcontext():
        if adapter is not None:
            model.set_adapter(adapter)
        for _ in range(count):
            longest = max(map(len, texts))
            ids = torch.tensor([[*it, *[0] * (longest - len(it))] for it in texts])
            ends = torch.tensor([len(it) - 1 for it in texts])
            following = model(input_ids=ids).logits[torch.arange(len(texts)), ends].argmax(-1)
            for text, token in zip(texts, following.tolist(), strict=True):
                text.append(token)
    return [text[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)]


@dataclass(frozen=True)
class Logits:
    """The engine's decoder by itself, for logits after a prompt."""

    engine: Engine

    @classmethod
    def of(cls, engine: Engine) -> "Logits":
        return cls(engine)

    def after(self, prompt: Sequence[int], adapter: str | None = None) -> torch.Tensor:
        index = None if adapter is None else self._index(prompt, adapter)
        pool = self.engine._scheduler.pool
        num_pages = -(-len(prompt) // self.engine._config.page_tokens)
        pool.grow("oracle", num_pages, 0.0)
        rows = SequenceRows(
            request_id="oracle",
            token_ids=prompt,
            start=0,
            pages=numpy.array(pool.pages("oracle"), numpy.int32),
            adapter=adapter or "",
            index=index,
            samples=True,
        )
        parts = self.engine._deps
        logits = parts.decoder.forward(build_batch([rows]), parts.pool)[0].clone()
        pool.release("oracle", 0.0)
        return logits

    def _index(self, prompt: Sequence[int], adapter: str) -> AdapterIndex:
        """The place of the adapter in the pool, after a request has loaded it."""
        engine = self.engine
        run(engine, [greedy("bring it", prompt, 1, adapter)])
        registered = engine._deps.store.get(adapter)
        assert registered is not None
        return engine._loads.index(registered.version.content_id)


def greedy(
    request_id: str, prompt: Sequence[int], count: int, adapter: str | None = None
) -> Request:
    """A greedy request for exactly `count` tokens."""
    return Request(
        id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(max_new_tokens=count, ignore_eos=True),
        adapter=adapter,
    )


def run(engine: Engine, requests: Sequence[Request], *, check: bool = True) -> dict[str, list[int]]:
    """Run requests that are added together. Returns tokens by id. Checks integrity each step."""
    for request in requests:
        engine.add(request)
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    for output in drain(engine, check=check):
        assert output.error is None, output.error
        if output.token_id is not None:
            tokens[output.request_id].append(output.token_id)
    return tokens


def drain(engine: Engine, *, check: bool = True) -> list[Output]:
    """Run until no work is left, and return all outputs."""
    outputs = []
    while engine.has_work:
        outputs += engine.step()
        if check:
            engine._scheduler.check_integrity()
    return outputs


def variant(config: EngineConfig, **changes: Any) -> EngineConfig:
    """The configuration with some fields changed."""
    return replace(config, **changes)


def assert_nothing_is_held(engine: Engine) -> None:
    """Assert that every page is free or idle cache, and that no request is in progress."""
    pages = engine.stats.pages
    idle = pages.num_idle_prefix_pages + pages.num_idle_adapter_pages
    assert pages.num_free + idle == pages.num_pages
    assert engine.stats.num_running == engine.stats.num_waiting == 0

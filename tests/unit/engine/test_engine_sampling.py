"""Structures, several sequences and biases through the whole engine, in and out of company."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.models import tiny_llama
from tests.unit.containers.lmi.tiny import byte_tokenizer, write_tokenizer
from tokenizers import Tokenizer

from hostelry.cli.demo import demo_model_folder
from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, Structure
from hostelry.engine.sampling.beams import fan_out

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
}
PATTERN = "(ab|c){20,60}-[0-9]{3}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_llama(tmp_path_factory.mktemp("tiny") / "model", vocab_size=259)
    write_tokenizer(folder)
    return folder


def loaded(folder: Path, **settings: int) -> Engine:
    return Engine.load(folder, EngineConfig(dtype="fp32", page_tokens=4, **settings))  # type: ignore[arg-type]


def run(engine: Engine, requests: Sequence[Request]) -> dict[str, list[Output]]:
    outputs: dict[str, list[Output]] = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
    return outputs


def asking(number: int) -> Request:
    """Greedy and sampled requests. Every other request has a structure."""
    structure = Structure("regex", PATTERN) if number % 2 else None
    return Request(
        id=f"r{number}",
        prompt_token_ids=tuple(range(10, 20 + number)),
        sampling=SamplingParams(
            max_new_tokens=140,
            temperature=float(number % 3),
            seed=number,
            repetition_penalty=1.1 if number % 4 == 0 else 1.0,
            num_logprobs=2 if number % 5 == 0 else None,
            ignore_eos=structure is None,
            structure=structure,
        ),
    )


def chosen(outputs: Sequence[Output]) -> list[tuple[int | None, FinishReason | None]]:
    return [(output.token_id, output.finish_reason) for output in outputs]


def text_of(outputs: Sequence[Output]) -> str:
    ids = [output.token_id for output in outputs[:-1] if output.token_id is not None]
    return str(byte_tokenizer().decode(ids, skip_special_tokens=False))


def test_structured_texts_are_the_same_alone_and_after_preemptions(folder: Path) -> None:
    requests = [asking(number) for number in range(6)]
    roomy = loaded(folder)
    alone = {request.id: run(roomy, [request])[request.id] for request in requests}
    token_bytes = 2 * 4 * sum(kv_widths(folder))
    tight = loaded(folder, pool_bytes=token_bytes * 320)
    together = run(tight, requests)
    assert tight.stats.num_preemptions > 0
    assert {name: chosen(each) for name, each in together.items()} == {
        name: chosen(each) for name, each in alone.items()
    }
    for number in (1, 3, 5):
        assert alone[f"r{number}"][-1].finish_reason is FinishReason.EOS
        assert re.fullmatch(PATTERN, text_of(alone[f"r{number}"]))


def kv_widths(folder: Path) -> list[int]:
    """The width of the keys of each layer."""
    config = json.loads((folder / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return [head * config["num_key_value_heads"]] * config["num_hidden_layers"]


def test_several_sequences_are_the_same_each_time(folder: Path) -> None:
    engine = loaded(folder)
    sampling = SamplingParams(max_new_tokens=12, temperature=1.0, seed=4, ignore_eos=True)
    request = Request(id="a", prompt_token_ids=(5, 6, 7), sampling=sampling)
    first = run(engine, fan_out(request, 3))
    again = run(engine, fan_out(request, 3))
    assert [chosen(each) for each in again.values()] == [chosen(each) for each in first.values()]
    tokens = {tuple(output.token_id for output in each) for each in first.values()}
    assert len(tokens) == 3
    assert chosen(run(engine, [request])["a"]) == chosen(first["a"])


def test_biases_and_the_fewest_tokens(folder: Path) -> None:
    engine = loaded(folder)
    (end,) = engine.model.eos_token_ids
    early = SamplingParams(max_new_tokens=9, logit_bias=((end, 100.0),))
    late = SamplingParams(max_new_tokens=9, logit_bias=((end, 100.0),), min_new_tokens=4)
    outputs = run(
        engine,
        [
            Request(id="early", prompt_token_ids=(5,), sampling=early),
            Request(id="late", prompt_token_ids=(5,), sampling=late),
        ],
    )
    assert [len(outputs["early"]), len(outputs["late"])] == [1, 5]
    assert outputs["late"][-1].finish_reason is FinishReason.EOS


def test_a_bad_structure_or_bias_is_refused_when_it_is_added(folder: Path) -> None:
    engine = loaded(folder)
    for sampling, message in (
        (SamplingParams(structure=Structure("regex", "(a")), "parenthesis is not closed"),
        (SamplingParams(structure=Structure("json_schema", "[]")), "must be a JSON schema"),
        (SamplingParams(logit_bias=((259, 1.0),)), "token id 259"),
    ):
        with pytest.raises(ValueError, match=message):
            engine.add(Request(id="x", prompt_token_ids=(5,), sampling=sampling))
    assert not engine.has_work


@pytest.mark.slow
@pytest.mark.thorough
def test_the_real_model_fills_a_schema_and_leaves_others_as_they_are() -> None:
    tokenizer = Tokenizer.from_file(str(demo_model_folder() / "tokenizer.json"))
    prompt = "<|im_start|>user\nDescribe a person as JSON.<|im_end|>\n<|im_start|>assistant\n"
    schema = Structure("json_schema", json.dumps(PERSON))
    asked = {
        "plain": SamplingParams(max_new_tokens=20),
        "greedy": SamplingParams(max_new_tokens=160, structure=schema),
        "sampled": SamplingParams(
            max_new_tokens=160, structure=schema, temperature=1.0, top_p=0.95, seed=1
        ),
    }
    requests = [
        Request(id=name, prompt_token_ids=tuple(tokenizer.encode(prompt).ids), sampling=sampling)
        for name, sampling in asked.items()
    ]
    engine = Engine.load(demo_model_folder(), EngineConfig(dtype="fp32"))
    together = run(engine, requests)
    alone = {request.id: run(engine, [request])[request.id] for request in requests}
    for name, outputs in together.items():
        assert chosen(outputs) == chosen(alone[name])
    for name in ("greedy", "sampled"):
        ids = [output.token_id or 0 for output in together[name]]
        person = json.loads(tokenizer.decode(ids[:-1], skip_special_tokens=False))
        assert {"name", "age"} <= set(person)
        assert 0 <= person["age"] <= 150

"""The LLM server over HTTP on a CPU and on CUDA gives PEFT's tokens in fp32."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.devices import DEVICES
from tests.integration.lmi_rig import Server, byte_model, engine_load, serving
from tests.unit.containers.lmi.tiny import CODEC, EOS
from tests.unit.engine.oracle import reference_model
from tests.unit.engine.test_grammar import ARITHMETIC, PERSON, allowed

from hostelry.engine.request import Structure
from hostelry.engine.sampling.structure_compiler import StructureCompiler

COUNT = 12
BASE, OUTSIDE = "lmi", "outside"
NAMES = (BASE, "es", "fr", OUTSIDE)
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": COUNT, "return_token_ids": True}
CHOICES = ["yes", 'no "quoted" é']
STRUCTURES: dict[str, tuple[dict[str, Any], Structure]] = {
    "schema": (
        {"response_format": {"type": "json_schema",
                             "json_schema": {"name": "person", "schema": PERSON}}},
        Structure("json_schema", json.dumps(PERSON)),
    ),
    "pattern": ({"guided_regex": "(ab|c){3,5}-[0-9]{2}"},
                Structure("regex", "(ab|c){3,5}-[0-9]{2}")),
    "choice": ({"guided_choice": CHOICES}, Structure("choice", json.dumps(CHOICES))),
    "grammar": ({"guided_grammar": ARITHMETIC}, Structure("grammar", ARITHMETIC)),
}  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """A reference on a CPU: transformers and PEFT, and the tokens that a structure allows."""

    peft: Any
    structures: StructureCompiler

    @torch.inference_mode()
    def likeliest(
        self, prompt: Sequence[int], answer: Sequence[int], model: str, within: str = ""
    ) -> list[int]:
        """The most likely token at each place of the answer, given the tokens before it.

        For a greedy answer they are the answer itself. `within` names a structure that limits the
        tokens.
        """
        tokens = torch.tensor([[*prompt, *answer]])
        if model == BASE:
            with self.peft.disable_adapter():
                logits_TV = self.peft(input_ids=tokens).logits[0]
        else:
            self.peft.set_adapter(model)
            logits_TV = self.peft(input_ids=tokens).logits[0]
        logits_TV = logits_TV[len(prompt) - 1 : -1]
        if within:
            grammar = self.structures.compile(STRUCTURES[within][1]).start()
            for logits_V, token in zip(logits_TV, answer, strict=True):
                forbidden = sorted(set(range(len(logits_V))) - allowed(grammar))
                logits_V[forbidden] = -torch.inf
                assert grammar.accept(token), (within, token)
        found: list[int] = logits_TV.argmax(-1).tolist()
        return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lmi")
    byte_model(made)
    return made


@pytest.fixture(scope="module", params=DEVICES)
def server(request: pytest.FixtureRequest, root: Path) -> Iterator[Server]:
    """A server that computes on the device, with two adapters of its folder and one other."""
    accelerators = "1" if request.param == "cuda" else "0"
    log = root / f"{request.param}.log"
    options = {"OPTION_ENABLE_LORA": "true", "HOSTELRY_ACCELERATORS": accelerators}
    with serving(root / "model", log, **options) as ready, ready.client() as client:
        added = client.post("/adapters", params={"name": OUTSIDE, "src": str(root / OUTSIDE)})
        assert added.status_code == 200, added.text
        kernels = str(engine_load(client)["kernels"])
        assert (kernels == "triton") == (request.param == "cuda"), kernels
        yield ready


@pytest.fixture(scope="module")
def reference(root: Path) -> Iterator[Reference]:
    folders = {name: root / "model" / "adapters" / name for name in ("es", "fr")}
    peft = reference_model(root / "model", {**folders, OUTSIDE: root / OUTSIDE})
    structures = StructureCompiler(root / "model", vocab_size=259, end_token_ids=[EOS])
    yield Reference(peft, structures)
    structures.close()


def asked(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """The answer's JSON."""
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(model: str, **more: Any) -> dict[str, Any]:
    """A chat's body, whose answer is the same each time."""
    return {"model": model, "messages": [{"role": "user", "content": f"to {model}"}], **GREEDY,
            **more}  # fmt: skip


def test_rows_of_many_adapters_in_one_batch_are_each_as_alone(
    server: Server, reference: Reference
) -> None:
    rows = [(f"the {'deep ' * number} sea", name) for number in range(6) for name in NAMES]
    body = {
        "inputs": [text for text, _ in rows],
        "adapters": ["" if name == BASE else name for _, name in rows],
        "parameters": {"max_new_tokens": COUNT, "do_sample": False, "details": True,
                       "ignore_eos_token": True},
    }  # fmt: skip
    with server.client() as client:
        before = engine_load(client)["steps"]
        answers = asked(client, "/invocations", body)
        steps = engine_load(client)["steps"] - before
    found = [[token["id"] for token in each["details"]["tokens"]] for each in answers]
    for (text, name), tokens in zip(rows, found, strict=True):
        prompt = CODEC.encode(text, add_special_tokens=True)
        assert (len(tokens), tokens) == (COUNT, reference.likeliest(prompt, tokens, name)), name
    assert steps < len(rows) * COUNT / 4  # so they were computed together


def test_chats_of_all_adapters_at_once_whole_and_in_pieces(
    server: Server, reference: Reference
) -> None:
    def pieces(client: httpx.Client, name: str) -> str:
        with client.stream("POST", "/v1/chat/completions", json=chat(name, stream=True)) as stream:
            *events, end = [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]
        assert end == "[DONE]"
        deltas = [choice["delta"] for it in events for choice in json.loads(it)["choices"]]
        return "".join(it.get("content") or "" for it in deltas)

    with server.client() as client, ThreadPoolExecutor(2 * len(NAMES)) as pool:
        streams = {name: pool.submit(pieces, client, name) for name in NAMES}
        wholes = {
            name: pool.submit(asked, client, "/v1/chat/completions", chat(name)) for name in NAMES
        }
        for name in NAMES:
            whole = wholes[name].result()
            (choice,) = whole["choices"]
            tokens = choice["token_ids"]
            assert tokens == reference.likeliest(whole["prompt_token_ids"], tokens, name), name
            assert (len(tokens), choice["finish_reason"]) == (COUNT, "length")
            assert streams[name].result() == choice["message"]["content"]


def test_structured_answers_are_the_likeliest_that_are_allowed_beside_free_ones(
    server: Server, reference: Reference
) -> None:
    most = 120
    rows = [(kind, name) for kind in (*STRUCTURES, "") for name in NAMES]

    def body(kind: str, name: str) -> dict[str, Any]:
        if not kind:
            return chat(name)
        return chat(name, **STRUCTURES[kind][0], max_tokens=most, ignore_eos=False)

    with server.client() as client, ThreadPoolExecutor(len(rows)) as pool:
        answers = list(
            pool.map(lambda row: asked(client, "/v1/chat/completions", body(*row)), rows)
        )
        sampled = asked(
            client,
            "/v1/completions",
            {"model": "es", "prompt": "x", "n": 8, "temperature": 1.0, "seed": 3,
             **STRUCTURES["choice"][0]},
        )  # fmt: skip
    for (kind, name), answer in zip(rows, answers, strict=True):
        prompt, tokens = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        assert tokens == reference.likeliest(prompt, tokens, name, kind), (kind, name)
        assert 0 < len(tokens) <= (most if kind else COUNT)
    assert {it["text"] for it in sampled["choices"]} <= set(CHOICES)

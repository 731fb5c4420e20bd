"""The LLM server as real processes: a random tiny Llama, real adapters, kills and signals."""

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.cases import case, cases
from tests.integration.lmi_rig import (
    END_S,
    START_S,
    Server,
    alive,
    byte_model,
    ended,
    engine_load,
    eventually,
    is_idle,
    serving,
    start,
)
from tests.models import random_adapter

pytestmark = pytest.mark.integration

LONG = {"max_new_tokens": 7000, "do_sample": False, "ignore_eos_token": True}
SHORT = {"max_new_tokens": 12, "do_sample": False, "ignore_eos_token": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_model(tmp_path_factory.mktemp("lmi"))


@pytest.fixture(scope="module")
def shared(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for every test that leaves it as it was."""
    log = tmp_path_factory.mktemp("shared") / "log"
    with serving(model, log, OPTION_ENABLE_LORA="true") as server:
        yield server


def invoke(client: httpx.Client, **body: Any) -> Any:
    answer = client.post("/invocations", json={"parameters": SHORT, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_mixed_company_changes_no_answer(shared: Server) -> None:
    names = ["", "es", "fr", "es", "", "fr"]
    prompts = [f"prompt number {number}" for number in range(len(names))]
    with shared.client() as client:
        alone = [
            invoke(client, inputs=prompt, adapters=name)["generated_text"]
            for prompt, name in zip(prompts, names, strict=True)
        ]
        listed = invoke(client, inputs=prompts, adapters=names)
        with ThreadPoolExecutor(len(names)) as pool:
            together = pool.map(
                lambda pair: invoke(client, inputs=pair[0], adapters=pair[1]),
                zip(prompts, names, strict=True),
            )
            assert [each["generated_text"] for each in together] == alone
    assert [each["generated_text"] for each in listed] == alone


def test_a_stream_is_the_whole_answer_in_pieces(shared: Server) -> None:
    with shared.client() as client:
        whole = invoke(client, inputs="hello", adapters="es")["generated_text"]
        body = {"inputs": "hello", "adapters": "es", "parameters": SHORT, "stream": True}
        lines = client.post("/invocations", json=body).text.splitlines()
        chat = {
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 5,
            "stream": True,
            "ignore_eos": True,
        }
        events = client.post("/v1/chat/completions", json=chat).text
    tokens = [json.loads(line) for line in lines]
    assert "".join(each["token"]["text"] for each in tokens) == whole
    assert tokens[-1]["generated_text"] == whole
    assert events.endswith("data: [DONE]\n\n")


def test_openais_own_client_gets_responses(shared: Server) -> None:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="any", max_retries=0) as client:
        asked: Any = {
            "model": "es",
            "input": [{"role": "user", "content": "hi"}],
            "instructions": "be brief",
            "max_output_tokens": 16,
            "temperature": 0,
            "extra_body": {"ignore_eos": True},
        }
        whole = client.responses.create(**asked)
        with client.responses.stream(**asked) as stream:
            seen = list(stream)
        plain = list(client.responses.create(stream=True, **asked))
        with pytest.raises(openai.BadRequestError, match="not stored here"):
            client.responses.create(store=True, **asked)
    assert (whole.status, whole.model) == ("incomplete", "es")
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage is not None
    assert whole.usage.output_tokens == 16
    assert seen[-1].type == "response.incomplete"
    assert seen[-1].response.output_text == whole.output_text
    deltas = [it.delta for it in seen if it.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert plain[-1].type == "response.incomplete"


def test_metrics_and_models_of_a_real_server(shared: Server) -> None:
    with shared.client() as client:
        invoke(client, inputs="hello", adapters="fr")
        page = client.get("/metrics").text
        cards = {it["id"]: it for it in client.get("/v1/models").json()["data"]}
        tokens = client.post("/tokenize", json={"prompt": "hello"}).json()
        (workflow,) = client.get("/models/lmi").json()
        health = client.get("/health")
    counted = 'vllm:request_queue_time_seconds_count{engine="0",model_name="lmi"} '
    assert int(float(page.split(counted)[1].split()[0])) >= 1
    assert 'hostelry_llm_adapter_requests_total{adapter="fr"' in page
    assert cards["es"]["parent"] == "lmi"
    assert tokens["count"] == 5
    assert workflow["models"][0]["workerGroups"][0]["workers"][0]["status"] == "READY"
    assert (health.status_code, health.content) == (200, b"")


def test_openais_own_client_is_served(shared: Server) -> None:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="any", max_retries=0) as client:
        asked: Any = {
            "messages": [{"role": "user", "content": "hi"}],
            "max_completion_tokens": 6,
            "temperature": 0,
            "extra_body": {"ignore_eos": True},
        }
        whole = client.chat.completions.create(model="es", logprobs=True, **asked)
        stream = client.chat.completions.create(
            model="es", stream=True, stream_options={"include_usage": True}, **asked
        )
        chunks = list(stream)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == whole.choices[0].message.content
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage is not None
        assert chunks[-1].usage == whole.usage
        assert {model.id for model in client.models.list()} == {"lmi", "es", "fr"}
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(model="gpt-9", **asked)
        several = client.completions.create(model="lmi", prompt="a", n=2, max_tokens=3)
        assert [choice.index for choice in several.choices] == [0, 1]
        with pytest.raises(openai.BadRequestError, match="at most 128"):
            client.completions.create(model="lmi", prompt="a", n=129)


def test_a_structured_answer(shared: Server) -> None:
    sampled = {"max_new_tokens": 40, "temperature": 1.0, "seed": 3}
    with shared.client() as client:
        answers = [
            invoke(
                client, inputs="hello", parameters={**sampled, "guided_regex": "(ab|c){3}-[0-9]"}
            ),
            invoke(client, inputs="hello", parameters={**sampled, "guided_choice": ["yes", "no"]}),
        ]
        wrong = {"inputs": "hello", "parameters": {"guided_json": {"not": {}}}}
        refused = client.post("/invocations", json=wrong)
    assert re.fullmatch("(ab|c){3}-[0-9]", answers[0]["generated_text"])
    assert answers[1]["generated_text"] in ("yes", "no")
    assert refused.status_code == 424
    assert "'not', which cannot be kept exactly" in refused.text


@pytest.mark.parametrize("path", ["/invocations", "/v1/completions"])
def test_limits_that_leave_no_token_are_the_requests_fault(shared: Server, path: str) -> None:
    limits = {"allowed_token_ids": [5], "no_repeat_ngram_size": 1}
    body = {"inputs": "a", "parameters": limits} if path == "/invocations" else {"prompt": "a"}
    with shared.client() as client:
        answer = client.post(path, json=body if "inputs" in body else {**body, **limits})
        assert answer.status_code in (400, 424)
        assert "no token is left" in answer.text
        streamed = client.post(path, json={"prompt": "a", "stream": True, **limits})
        assert "no token is left" in streamed.text
        assert client.get("/ping").status_code == 200


def test_a_client_that_leaves_frees_its_pages(shared: Server) -> None:
    with shared.client() as client:
        before = engine_load(client)["generatedTokens"]
        body = {"inputs": "hello", "parameters": LONG, "stream": True}
        with client.stream("POST", "/invocations", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert engine_load(client)["runningRequests"] == 1, list(lines)[-1]
        eventually(lambda: is_idle(client), "the stream's pages are free")
        try:
            client.post("/invocations", json={**body, "stream": False}, timeout=0.5)
        except httpx.TimeoutException:
            eventually(lambda: is_idle(client), "the whole answer's pages are free")
        generated = engine_load(client)["generatedTokens"] - before
    assert generated < LONG["max_new_tokens"]


def test_an_engine_that_is_killed_fails_its_requests_and_ends_the_server(
    model: Path, tmp_path: Path
) -> None:
    with serving(model, tmp_path / "log") as server, server.client() as client:
        body = {"inputs": "hello", "parameters": LONG}
        with (
            ThreadPoolExecutor(1) as pool,
            client.stream("POST", "/invocations", json={**body, "stream": True}) as answer,
        ):
            lines = answer.iter_lines()
            next(lines)
            whole = pool.submit(client.post, "/invocations", json=body)
            eventually(lambda: engine_load(client)["runningRequests"] == 2, "both requests run")
            os.kill(server.engine_pid(), signal.SIGKILL)
            *_, last = lines
            assert json.loads(last)["code"] == 500
            assert whole.result(END_S).status_code == 500
        assert server.status() in (500, None)
        assert ended(server) == 1
        assert "Inference Engine Failure" in server.log.read_text()


def test_sigterm_refuses_new_requests_and_finishes_old_ones(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path / "log") as server, server.client() as client:
        engine = server.engine_pid()
        body = {"inputs": "hello", "parameters": {**SHORT, "max_new_tokens": 200}, "stream": True}
        with client.stream("POST", "/invocations", json=body) as answer:
            lines = answer.iter_lines()
            seen = [next(lines)]
            os.kill(engine, signal.SIGSTOP)  # holds the stream open for as long as is needed
            server.process.terminate()
            eventually(lambda: server.status() == 503, "draining")
            assert client.post("/invocations", json=body).status_code == 503
            os.kill(engine, signal.SIGCONT)
            seen += lines
        last = json.loads(seen[-1])
        assert len(seen) == 200
        assert last["generated_text"] is not None
        assert ended(server) == 0
        assert not alive(engine)


def test_the_engine_never_outlives_its_server(model: Path, tmp_path: Path) -> None:
    with serving(model, tmp_path / "log") as server:
        engine = server.engine_pid()
        server.process.kill()
        server.process.wait()
        eventually(lambda: not alive(engine), "the engine is gone")


def test_a_bad_adapter_in_the_model_folder_fails_the_start(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    random_adapter(folder / "adapters" / "broken", model, rank=4, use_dora=True)
    process, _ = start(folder, tmp_path / "log", OPTION_ENABLE_LORA="true")
    assert process.wait(START_S) == 1
    reported = (tmp_path / "log").read_text()
    assert "adapter broken" in reported
    assert "use_dora" in reported


def test_a_hub_model_in_the_operators_cache_is_served_offline(model: Path, tmp_path: Path) -> None:
    cached = tmp_path / "home" / "hub" / "models--org--tiny"
    snapshot = cached / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    for file in model.iterdir():
        if file.is_file():
            (snapshot / file.name).symlink_to(file)
    empty = tmp_path / "empty"
    env = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "HF_MODEL_ID": "org/tiny"}
    with serving(empty, tmp_path / "log", **env) as server, server.client() as client:
        assert invoke(client, inputs="hello")["generated_text"]


def test_a_server_that_is_stopped_while_it_loads_stops(model: Path, tmp_path: Path) -> None:
    process, port = start(model, tmp_path / "log")
    server = Server(process, f"http://127.0.0.1:{port}", tmp_path / "log")
    eventually(lambda: server.status() is not None, "listening", START_S)
    process.terminate()
    assert ended(server) == 0


@cases(
    "env, status, reported",
    case("impossible option", {"OPTION_DTYPE": "int3"}, 2, "OPTION_DTYPE is 'int3'"),
    case("a port in words", {"SAGEMAKER_BIND_TO_PORT": "web"}, 2, "the port is 'web'"),
    case("a hub model while offline", {"HF_MODEL_ID": "org/none", "HF_HUB_OFFLINE": "1"}, 1,
        "model_id is org/none, which is no local folder"),
    case("a model left in S3", {"HF_MODEL_ID": "s3://b/k"}, 1, "s3://b/k"),
    case("a folder without a model", {}, 1, "holds no config.json"),
)  # fmt: skip
def test_a_server_that_cannot_start_names_the_cause(
    env: dict[str, str], status: int, reported: str, tmp_path: Path
) -> None:
    process, _ = start(tmp_path, tmp_path / "log", **env)
    assert process.wait(START_S) == status
    assert reported in (tmp_path / "log").read_text()


def test_a_taken_port_is_a_clear_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process, _ = start(tmp_path, tmp_path / "log", SAGEMAKER_BIND_TO_PORT=port)
        assert process.wait(START_S) == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in (tmp_path / "log").read_text()

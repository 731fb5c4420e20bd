"""The routes of vLLM's images and of DJL Serving, except those that generate text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import ask, ask_all, config, fake, ids, server

from hostelry import __version__
from hostelry.containers.lmi.http.server import LmiServer, ServerPhase
from hostelry.containers.lmi.settings.config import LmiConfig

LORA = "option.enable_lora=true"


def test_health_is_empty_and_truthful() -> None:
    served = server()
    answer = ask(served, "/health", method="GET")
    assert (answer.status, answer.text) == (200, "")
    fake(served).ready = False
    assert ask(served, "/health", method="GET").status == 503
    served.phase = ServerPhase.DRAINING
    assert ask(served, "/health", method="GET").status == 503


def test_version_and_load() -> None:
    served = server()
    assert ask(served, "/version", method="GET").json == {"version": __version__}
    assert ask(served, "/load", method="GET").json == {"server_load": 0}


def test_models_have_root_parent_and_length() -> None:
    served = server(settings=config(f"{LORA}\noption.served_model_name=one,two"))
    cards = {it["id"]: it for it in ask(served, "/v1/models", method="GET").json["data"]}
    assert list(cards) == ["one", "two", "es", "fr"]
    assert (cards["one"]["root"], cards["one"]["parent"]) == ("/opt/ml/model", None)
    assert (cards["es"]["root"], cards["es"]["parent"]) == ("adapter es", "one")
    assert cards["fr"]["max_model_len"] == 256
    assert ask(served, "/v1/models/es", method="GET").json == cards["es"]


def test_a_model_of_the_hub_is_found_by_its_id() -> None:
    served = server(settings=config("option.served_model_name=org/name"))
    assert ask(served, "/v1/models/org/name", method="GET").json["id"] == "org/name"
    missing = ask(served, "/v1/models/org", method="GET")
    assert (missing.status, missing.json["error"]["type"]) == (404, "NotFoundError")


def test_djls_description_of_the_model() -> None:
    served = server()
    served.ready_at = 0.0
    (workflow,) = ask(served, "/models/lmi", method="GET").json
    (model,) = workflow["models"]
    assert (workflow["workflowName"], workflow["version"]) == ("lmi", None)
    assert (model["modelUrl"], model["queueSize"], model["requestInQueue"]) == (
        "/model",
        1000,
        0,
    )
    (group,) = model["workerGroups"]
    assert group["device"] == {"deviceType": "cpu", "deviceId": -1}
    worker = {"id": 1, "startTime": "1970-01-01T00:00:00.000Z", "status": "READY"}
    assert group["workers"] == [worker]


@cases(
    "path, headers, status",
    case("a path with the model's name", "/predictions/lmi", {}, 200),
    case("the name of its folder, as in DJL", "/predictions/model", {}, 200),
    case("the path of a multi-model endpoint", "/models/lmi/invoke", {}, 200),
    case("an unknown model in the path", "/predictions/other", {}, 404),
    case("an unknown model to invoke", "/models/other/invoke", {}, 404),
    case("a version that is not there", "/predictions/lmi/2", {}, 404),
    case("the model's revision", "/predictions/lmi/main", {}, 200),
    case("a query with the name", "/invocations?model_name=lmi", {}, 200),
    case("a query with another name", "/invocations?model_name=other", {}, 404),
    case("a header with another", "/invocations", {"model_name": "other"}, 404),
    case("a query with a version", "/invocations?model_version=3", {}, 404),
    case("query before header", "/invocations?model_name=lmi", {"model_name": "other"}, 200),
)
def test_the_model_that_a_request_names(path: str, headers: dict[str, str], status: int) -> None:
    served = server(settings=config("option.revision=main"))
    answer = ask(served, path, {"inputs": "a"}, headers=headers)
    assert answer.status == status, answer.text
    if status == 404:
        assert answer.json["type"] == "ResourceNotFoundException"


def test_tokens_of_a_text_and_back() -> None:
    served = server()
    answer = ask(served, "/tokenize", {"prompt": "hé", "return_token_strs": True}).json
    assert answer["tokens"] == list(ids("hé"))
    assert (answer["count"], answer["max_model_len"]) == (3, 256)
    assert answer["token_strs"] == ["h", "Ã", "©"]
    back = ask(served, "/detokenize", {"tokens": answer["tokens"]})
    assert (back.status, back.json) == (200, {"prompt": "hé"})


def test_tokens_of_a_chat_are_those_of_its_prompt() -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    served = server()
    counted = ask(served, "/tokenize", chat).json
    assert counted["tokens"][:1] == [1]
    used = ask(served, "/v1/chat/completions", chat).json["usage"]["prompt_tokens"]
    assert counted["count"] == used
    shorter = ask(served, "/tokenize", {**chat, "add_generation_prompt": False}).json
    assert shorter["count"] < counted["count"]


@cases(
    "path, body, status, field",
    case("neither text nor chat", "/tokenize", {}, 400, "prompt"),
    case("two texts", "/tokenize", {"prompt": ["a", "b"]}, 400, "prompt"),
    case("ids", "/tokenize", {"prompt": [1, 2]}, 400, "prompt"),
    case("an unknown field", "/tokenize", {"prompt": "a", "x": 1}, 400, "x"),
    case("no such model", "/tokenize", {"prompt": "a", "model": "z"}, 404, "model"),
    case("an unknown token", "/detokenize", {"tokens": [10**6]}, 400, "tokens"),
    case("a negative token", "/detokenize", {"tokens": [-1]}, 400, "tokens"),
    case("a text", "/detokenize", {"tokens": "1"}, 400, "tokens"),
    case("nothing", "/detokenize", {}, 400, "tokens"),
)
def test_refused_tokens(path: str, body: Any, status: int, field: str) -> None:
    answer = ask(server(), path, body)
    assert (answer.status, answer.json["error"]["param"]) == (status, field), answer.text


def lora_server(folder: Path) -> LmiServer:
    settings = replace(config(LORA), model_dir=folder)
    return server(settings=settings)


def test_an_adapter_is_loaded_replaced_and_unloaded_by_vllms_routes(tmp_path: Path) -> None:
    for name in ("de", "other"):
        (tmp_path / "more" / name).mkdir(parents=True)
    served = lora_server(tmp_path)
    body = {"lora_name": "de", "lora_path": "more/de"}
    loaded = ask(served, "/v1/load_lora_adapter", body)
    assert (loaded.status, loaded.type.split(";")[0]) == (200, "text/plain")
    assert loaded.text == "Success: LoRA adapter 'de' added successfully."
    again = ask(served, "/v1/load_lora_adapter", body)
    assert (again.status, again.json["error"]["type"]) == (400, "InvalidUserInput")
    assert again.json["error"]["message"] == "The lora adapter 'de' has already been loaded."
    other = {"lora_name": "de", "lora_path": "/opt/ml/model/more/other", "load_inplace": True}
    assert ask(served, "/v1/load_lora_adapter", other).status == 200
    assert fake(served).versions["de"] == str(tmp_path / "more" / "other")
    gone = ask(served, "/v1/unload_lora_adapter", {"lora_name": "de"})
    assert (gone.status, gone.text) == (200, "Success: LoRA adapter 'de' removed successfully.")
    missing = ask(served, "/v1/unload_lora_adapter", {"lora_name": "de"})
    assert (missing.status, missing.json["error"]["type"]) == (404, "NotFoundError")


@cases(
    "path, status",
    case("a folder of the machine", "/etc", 400),
    case("a way out", "../secret", 400),
    case("a link out", "link", 400),
    case("nothing there", "missing", 404),
    case("a local URL", "file:///etc", 400),
    case("an adapter that cannot be applied", "bad", 400),
    case("no memory for it", "huge", 507),
    case("an artifact that is gone", "/artifacts/one", 400),
)
def test_places_that_vllms_route_refuses(tmp_path: Path, path: str, status: int) -> None:
    model = tmp_path / "model"
    for name in ("bad", "huge"):
        (model / name).mkdir(parents=True)
    (model / "link").symlink_to(tmp_path)
    served = lora_server(model)
    served.config = replace(served.config, artifact_folders=("/artifacts/one",))
    answer = ask(served, "/v1/load_lora_adapter", {"lora_name": "de", "lora_path": path})
    assert answer.status == status, answer.text
    assert "de" not in fake(served).versions


def test_an_id_of_the_hub_is_a_remote_source(tmp_path: Path) -> None:
    served = lora_server(tmp_path)
    body = {"lora_name": "de", "lora_path": "someone/adapter"}
    assert ask(served, "/v1/load_lora_adapter", body).status == 200
    assert fake(served).versions["de"] == "hf://someone/adapter"


@cases(
    "settings, body, message",
    case("no path", LORA, {"lora_name": "de"}, "Both 'lora_name' and"),
    case("no name", LORA, {"lora_path": "more/de"}, "Both 'lora_name' and"),
    case("the base model's name", LORA, {"lora_name": "lmi", "lora_path": "a"}, "already"),
    case("a list", LORA, [1], "JSON object"),
    case("LoRA off", "", {"lora_name": "de", "lora_path": "a/b"}, "LoRA is not enabled"),
)
def test_bodies_that_vllms_route_refuses(settings: str, body: Any, message: str) -> None:
    answer = ask(server(settings=config(settings)), "/v1/load_lora_adapter", body)
    assert answer.status == 400
    assert message in answer.json["error"]["message"]


def samples(served: LmiServer) -> dict[str, float]:
    """The page's samples by name and their own label."""
    page = ask(served, "/metrics", method="GET")
    assert page.status == 200
    found = {}
    for family in text_string_to_metric_families(page.text):
        for each in family.samples:
            own = {k: v for k, v in each.labels.items() if k not in ("model_name", "engine")}
            found[" ".join([each.name, *own.values()])] = each.value
    return found


def test_metrics_count_what_was_generated() -> None:
    served = server(settings=config(LORA))
    body: dict[str, Any] = {"inputs": "abc", "parameters": {"max_new_tokens": 4}}
    ask(served, "/invocations", body)
    ask(served, "/invocations", {**body, "adapters": "es", "stream": True})
    ask(served, "/invocations", {"inputs": ""})
    seen = samples(served)
    assert seen["vllm:prompt_tokens_total"] == 6
    assert seen["vllm:generation_tokens_total"] == 8
    assert seen["vllm:request_success_total length"] == 2
    assert seen["vllm:time_to_first_token_seconds_count"] == 2
    assert seen["vllm:inter_token_latency_seconds_count"] == 6
    assert seen["vllm:request_queue_time_seconds_count"] == 2
    assert seen["hostelry_llm_adapter_generation_tokens_total es"] == 4
    assert seen["hostelry_llm_refused_requests_total 424"] == 1
    assert seen["vllm:num_requests_running"] == 0


def test_metrics_count_ended_and_broken_sequences() -> None:
    served = server()
    ask(served, "/invocations", {"inputs": "a", "parameters": {"stop": ["base"]}})
    broken = server()
    fake(broken).fail_after = 2
    ask(broken, "/invocations", {"inputs": "a", "stream": True})
    assert samples(served)["vllm:request_success_total stop"] == 1
    assert samples(broken)["vllm:request_success_total error"] == 1


def test_the_adapters_of_the_metrics_are_those_that_are_registered(tmp_path: Path) -> None:
    served = server(settings=config(LORA))
    asked: list[Any] = [
        ("POST", "/invocations", {"inputs": "a", "adapters": name}, {}) for name in ("es", "fr")
    ]
    ask_all(served, asked)
    assert "hostelry_llm_adapter_requests_total es" in samples(served)
    ask(served, "/adapters/es", method="DELETE")
    seen = samples(served)
    assert "hostelry_llm_adapter_requests_total es" not in seen
    assert "hostelry_llm_adapter_requests_total fr" in seen


def test_metrics_are_there_while_the_model_loads() -> None:
    settings: LmiConfig = config()
    assert "vllm:num_requests_waiting" in samples(LmiServer(config=settings, clock=server().clock))

"""Answers never contain a path of the machine, and show the model's name from the body."""

from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import Answer, ask, config, ids, server

from hostelry.containers.lmi.fake import FakeBackend
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord
from hostelry.containers.lmi.http.server import LmiServer, without_host_paths
from hostelry.containers.lmi.settings.config import ImageKind, resolve_config

FOLDER = "/home/u/cells/a/model"
DOWNLOADED = {"OPTION_MODEL_ID": FOLDER, "HOSTELRY_ARTIFACT_0": FOLDER}
VLLM = {"SM_VLLM_MODEL": FOLDER, "HOSTELRY_ARTIFACT_0": FOLDER}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
ROUTES = ("/invocations", "/v1/chat/completions")


def served(image: ImageKind = ImageKind.LMI) -> LmiServer:
    env = VLLM if image is ImageKind.VLLM else DOWNLOADED
    return server(settings=resolve_config(env, "", (), Path("/home/u/model"), 4, image=image))


def clean(answer: Answer) -> str:
    assert "/home" not in answer.text
    return answer.text


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("image", [ImageKind.LMI, ImageKind.VLLM])
def test_an_unknown_model_is_404_with_the_names_that_are_served(
    image: ImageKind, path: str
) -> None:
    answer = ask(served(image), path, {**CHAT, "model": "my-endpoint"})
    assert answer.status == 404
    name = "/opt/ml/model" if image is ImageKind.VLLM else "lmi"
    assert f"The model 'my-endpoint' does not exist. The base model is {name} (" in clean(answer)


def test_an_answer_and_the_models_list_name_no_place() -> None:
    given = served(ImageKind.VLLM)
    assert ask(given, ROUTES[1], CHAT).json["model"] == "/opt/ml/model"
    clean(ask(given, "/v1/models", method="GET"))


@pytest.mark.parametrize(
    "image", [ImageKind.TGI, ImageKind.LMI], ids=["TGI", "LMI's rolling batch"]
)
def test_images_that_do_not_read_the_models_name(image: ImageKind) -> None:
    properties = "option.rolling_batch=vllm" if image is ImageKind.LMI else ""
    settings = resolve_config({}, properties, (), Path("/home/u/model"), 4, image=image)
    answer = ask(server(settings=settings), ROUTES[0], {**CHAT, "model": "my-endpoint"})
    assert answer.status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_engine_names_no_place(stream: bool) -> None:
    reason = "/model/adapters/es: no file; /model/x; see /v1/chat"
    answers: Any = {None: ids("abc"), "es": ids("abc")}
    backend = FakeBackend(answers, fail_after=1, failure=reason)
    given = server(backend=backend)
    answer = ask(given, ROUTES[1], {**CHAT, "stream": stream})
    assert "adapter es: no file; /opt/ml/model/x; see /v1/chat" in answer.text


@cases(
    "text, expected",
    case("its files", "/srv/ad/x and '/srv/ad'", "adapter a/x and 'adapter a'"),
    case("its files, where its source ends in a slash", "/srv/b/x", "adapter b/x"),
    case("as an address of a file", "file:///srv/ad/x", "file://adapter a/x"),
    case("a folder with a longer name", "/srv/adapters/z", "/srv/adapters/z"),
    case("an address with such a path", "https://e.com/srv/ad s3://srv/ad",
        "https://e.com/srv/ad s3://srv/ad"),
)  # fmt: skip
def test_only_whole_folders_of_adapters_are_named(text: str, expected: str) -> None:
    places = {"a": "/srv/ad", "b": "/srv/b/"}
    adapters = [AdapterRecord(name=it, alias=it, src=src) for it, src in places.items()]
    assert without_host_paths(text, config(), adapters) == expected


def test_texts_without_a_known_folder_stay() -> None:
    assert without_host_paths("no /etc/x, a/b", config(), ()) == "no /etc/x, a/b"

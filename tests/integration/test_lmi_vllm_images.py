"""Images in messages, over the real vLLM and a LLaVA: answers and refusals."""

import base64
import io
import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from PIL import Image
from tests.cases import case, cases
from tests.integration import lmi_rig
from tests.integration.lmi_rig import Server, serving
from tests.models import tiny_llava
from tests.unit.containers.lmi.tiny import SPECIAL, byte_tokenizer
from tokenizers import AddedToken, Tokenizer

from hostelry.base.runtimes import VARIABLE, find_installed, runtimes_folder

FOLDER = runtimes_folder(os.environ)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        find_installed(FOLDER, "vllm") is None,
        reason=f"vLLM is not installed in {FOLDER}: hostelry runtimes install vllm",
    ),
]
RED, BLUE = (255, 0, 0), (0, 0, 255)
TOKENS_OF_ONE = 4
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}"
)
PROCESSOR = {
    "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 28},
    "do_center_crop": True, "crop_size": {"height": 28, "width": 28}, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3, "do_convert_rgb": True, "resample": 3,
}  # fmt: skip


def picture(colour: tuple[int, int, int], kind: str = "PNG", size: int = 28) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(file, kind)
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A tiny PNG that claims a very large number of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def image(data: bytes, kind: str = "image/png") -> dict[str, Any]:
    return at(f"data:{kind};base64,{base64.b64encode(data).decode()}")


def at(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class Pictures(BaseHTTPRequestHandler):
    """A host of pictures. One of its addresses leads elsewhere."""

    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "/red.png")
            self.end_headers()
            return
        data = picture(RED) if self.path == "/red.png" else bytes(21 << 20)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            return  # the reader has had enough

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def pictures() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens([AddedToken("<image>", special=True)])
    image_token = tokenizer.token_to_id("<image>")
    folder = tmp_path_factory.mktemp("llava") / "model"
    assert image_token is not None
    tiny_llava(folder, tokenizer.get_vocab_size(), image_token)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2], "pad_token": SPECIAL[0], "chat_template": TEMPLATE,
    }  # fmt: skip
    processor = {
        "processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": 14,
        "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1,
    }  # fmt: skip
    for name, members in {
        "tokenizer_config.json": settings,
        "processor_config.json": processor,
        "preprocessor_config.json": PROCESSOR,
    }.items():
        (folder / name).write_text(json.dumps(members))
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = {
        "OPTION_POOL_BYTES": str(64 << 20), "OPTION_LIMIT_MM_PER_PROMPT": '{"image": 3}',
        "HOSTELRY_MEDIA_DOMAINS": "localhost",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmi_rig, "START_S", 300.0)
        log = tmp_path_factory.mktemp("logs") / "vllm"
        with serving(model, log, **options, **{VARIABLE: str(FOLDER)}) as running:
            yield running


def asked(server: Server, *parts: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"model": "lmi", "messages": [{"role": "user", "content": list(parts)}]}
    greedy = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    with server.client() as client:
        return client.post("/v1/chat/completions", json={**body, **greedy, **more})


def answer(server: Server, *parts: dict[str, Any], **more: Any) -> Any:
    found = asked(server, *parts, **more)
    assert found.status_code == 200, found.text
    return found.json()


def text(found: Any) -> str:
    content: str = found["choices"][0]["message"]["content"]
    return content


def expected(model: Path, prompt: str, *colours: tuple[int, int, int]) -> str:
    """The answer of transformers, whose prompt has each image's tokens in its place."""
    import transformers

    llava: Any = transformers.LlavaForConditionalGeneration.from_pretrained(model)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tokenizer.encode(prompt.replace("<image>", "<image>" * TOKENS_OF_ONE)).ids
    pixels = [torch.tensor(it).view(3, 1, 1).expand(3, 28, 28) / 127.5 - 1 for it in colours]
    with torch.inference_mode():
        found = llava.generate(
            input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            pixel_values=torch.stack(pixels), max_new_tokens=8, do_sample=False, eos_token_id=-1,
        )  # fmt: skip
    answered: str = tokenizer.decode(found[0, len(ids) :].tolist())
    return answered


def test_answers_are_those_of_transformers(server: Server, model: Path) -> None:
    one = answer(server, image(picture(RED)), words("what is it"))
    assert text(one) == expected(model, "<image>what is it", RED)
    assert one["usage"]["prompt_tokens"] == TOKENS_OF_ONE + len("what is it")
    two = answer(server, words("a"), image(picture(RED)), words("b"), image(picture(BLUE)))
    assert text(two) == expected(model, "a<image>b<image>", RED, BLUE)
    assert text(two) != text(
        answer(server, words("a"), image(picture(BLUE)), words("b"), image(picture(RED)))
    )


def test_formats_addresses_and_streams_give_the_same_answer(server: Server, pictures: str) -> None:
    plain = text(answer(server, image(picture(RED)), words("x")))
    assert text(answer(server, at(f"{pictures}/red.png"), words("x"))) == plain
    short = {"type": "input_image", "image_url": image(picture(RED))["image_url"]["url"]}
    assert text(answer(server, short, words("x"))) == plain
    for kind in ("GIF", "WEBP"):
        file = io.BytesIO()
        Image.new("RGB", (28, 28), RED).save(file, kind, lossless=True)
        assert text(answer(server, image(file.getvalue()), words("x"))) == plain, kind
    stream = asked(server, image(picture(RED)), words("x"), stream=True)
    events = [it[6:] for it in stream.text.split("\n\n") if it.startswith("data: {")]
    deltas = [json.loads(it)["choices"][0]["delta"].get("content") or "" for it in events]
    assert "".join(deltas) == plain


@cases(
    "parts, more, message",
    case("no picture", [image(b"nonsense")], {}, "none of PNG"),
    case("half a picture", [image(picture(RED)[:60])], {}, "cannot be read"),
    case("too many pixels", [image(bomb(9000, 9000))], {}, "9000 x 9000 pixels"),
    case("a bomb", [image(bomb(60000, 60000))], {}, "cannot be read"),
    case("a drawing", [image(b"<svg/>", "image/svg+xml")], {}, "TYPE is one of"),
    case("more than allowed", [image(picture(RED))] * 4, {}, "more than 3 images"),
    case("another host", [at("http://169.254.169.254/x")], {}, "not allowed"),
    case("a file", [at("file:///etc/passwd")], {}, "data URI, or http"),
    case("a prompt cut short", [image(picture(RED))], {"truncate_prompt_tokens": 3}, "truncation"),
    case("scores of its prompt", [image(picture(RED))], {"prompt_logprobs": 1}, "of the prompt"),
)  # fmt: skip
def test_refusals_name_their_cause_and_the_server_goes_on(
    server: Server, parts: list[dict[str, Any]], more: dict[str, Any], message: str
) -> None:
    refused = asked(server, *parts, words("x"), **more)
    assert refused.status_code == 400, refused.text
    assert message in refused.text
    assert server.status() == 200
    assert text(answer(server, image(picture(RED)), words("x")))


@cases(
    "path, message",
    case("one that leads elsewhere", "/elsewhere", "answered 302"),
    case("one without end", "/large", "more than 20971520 bytes"),
)
def test_an_allowed_host_may_not_send_anything(
    server: Server, pictures: str, path: str, message: str
) -> None:
    refused = asked(server, at(f"{pictures}{path}"))
    assert refused.status_code == 400
    assert message in refused.text

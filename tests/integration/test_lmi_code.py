"""An author's code in real processes: its effects, its failures, and its limits."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.integration.code_rig import HANDLE, INPUT, OUTPUT, Coded, with_code, write_code

from hostelry.containers.code.confinement import ConfinementError, check_possible
from hostelry.containers.lmi.code import author_code
from hostelry.containers.lmi.code.author_code import CodePolicy
from hostelry.containers.lmi.refusal import Refusal

pytestmark = pytest.mark.integration

PARAMETERS = {"max_new_tokens": 40}
RENAMES = (
    INPUT
    + """
@input_formatter
def rename(payload, tokenizer=None, **kwargs):
    payload["inputs"] = payload.pop("question")
    payload.setdefault("parameters", {})["max_new_tokens"] = len(tokenizer.encode("four"))
    return payload
"""
)
LABELS = (
    OUTPUT
    + """
import json
@output_formatter
def label(response):
    if isinstance(response, str):
        if response.strip() == "data: [DONE]":
            return response
        event = json.loads(response[6:])
        event["by"] = "NAME"
        return f"data: {json.dumps(event)}"
    response["by"] = "NAME"
    return response
"""
)


def answer(folder: Path, base: str, body: Any, path: str = "/invocations", **more: Any) -> Any:
    """The response to one request."""
    return with_code(folder, base, lambda it: it.ask(body, path), **more)


def test_formatters_change_payload_and_response(tmp_path: Path) -> None:
    found = answer(tmp_path, RENAMES + LABELS, {"question": "hi"})
    assert (found.status_code, found.json()) == (200, {"generated_text": "a ba", "by": "NAME"})


def test_a_stream_passes_through_the_formatter_event_by_event(tmp_path: Path) -> None:
    body = {"inputs": "hi", "stream": True, "parameters": PARAMETERS}
    found = answer(tmp_path, LABELS, body)
    assert found.headers["content-type"] == "application/jsonlines"
    lines = [it for it in found.text.splitlines() if it]
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(it.removeprefix("data: ")) for it in lines[:-1]]
    assert {it["by"] for it in events} == {"NAME"}
    assert "".join(it["choices"][0]["text"] for it in events) == "a base answer"


def test_a_stream_of_openai_stays_server_sent_events(tmp_path: Path) -> None:
    body = {"prompt": "hi", "stream": True, "max_tokens": 40}
    found = answer(tmp_path, LABELS, body, "/v1/completions")
    assert found.headers["content-type"] == "text/event-stream"
    parts = [it for it in found.text.split("\n\n") if it]
    assert parts[-1] == "data: [DONE]"
    assert {json.loads(it[6:])["by"] for it in parts[:-1]} == {"NAME"}


def test_an_adapters_formatter_is_used_for_it_alone(tmp_path: Path) -> None:
    async def run(it: Coded) -> list[Any]:
        bodies = [
            {"inputs": "a"},
            {"inputs": "a", "adapters": "es"},
            {"inputs": "a", "adapters": "fr"},
        ]
        return [(await it.ask(body)).json()["by"] for body in bodies]

    adapters = {"es": LABELS.replace("NAME", "es")}
    assert with_code(tmp_path, LABELS, run, adapters) == ["NAME", "es", "NAME"]


def test_inputs_of_adapters_with_different_formatters_are_refused(tmp_path: Path) -> None:
    body = {"inputs": ["a", "b"], "adapters": ["es", "fr"]}
    found = answer(tmp_path, LABELS, body, adapters={"es": LABELS})
    assert found.status_code == 424
    assert "output formatters of their own" in found.json()["error"]


def test_an_adapters_formatter_cannot_choose_another_adapter(tmp_path: Path) -> None:
    code = INPUT + "@input_formatter\ndef f(p, **_):\n    p['adapters'] = 'fr'\n    return p\n"

    async def run(it: Coded) -> Any:
        by_body = await it.ask({"inputs": "a", "adapters": "es"})
        by_model = await it.ask({"prompt": "a", "model": "es"}, "/v1/completions")
        return by_body.json()["generated_text"], by_model.json()["choices"][0]["text"]

    assert with_code(tmp_path, None, run, {"es": code}) == ("hola", "hola")


HANDLER = (
    HANDLE
    + """
import asyncio
from djl_python.async_utils import create_non_stream_output, create_stream_chunk_output
from djl_python.encode_decode import decode

async def items():
    for number in range(3):
        await asyncio.sleep(0)
        yield create_stream_chunk_output({"n": number}, number == 2)

async def handle(inputs: Input):
    if inputs.is_empty():
        return None
    request = inputs.get_batches()[0]
    payload = decode(request, request.get_property("Content-Type"))
    if "prompt" in payload:
        return None
    if payload.get("stream"):
        return items()
    if payload.get("fails"):
        return Output().error("no", 418)
    if "other" in payload:
        return "text"
    properties = {"X-Mine": request.get_property("x-theirs"), "Content-Length": "1"}
    mine = {"mine": payload, "from": inputs.get_property("model_dir")}
    return create_non_stream_output(mine, properties)
"""
)


@cases(
    "body, status, kind, text",
    case("stream", {"stream": 1}, 200, "application/jsonlines", '{"n": 2}'),
    case("its own error", {"fails": 1}, 418, "application/json", '"error": "no"'),
    case("left to us", {"prompt": "hi"}, 200, "application/json", "a base answer"),
    case("no Output", {"other": 1}, 424, "application/json", "handle returned str"),
)  # fmt: skip
def test_a_handler_answers_or_leaves_the_request(
    tmp_path: Path, body: Any, status: int, kind: str, text: str
) -> None:
    found = answer(tmp_path, HANDLER, body)
    assert (found.status_code, found.headers["content-type"]) == (status, kind)
    assert text in found.text


def test_a_handler_sees_headers_and_sets_some(tmp_path: Path) -> None:
    async def run(it: Coded) -> httpx.Response:
        return await it.ask({"a": 1}, **{"x-theirs": "1", "X-Hostelry-Copy-Key": "k"})

    found = with_code(tmp_path, HANDLER, run)
    assert found.json() == {"mine": {"a": 1}, "from": str(tmp_path)}
    assert found.headers["x-mine"] == "1"
    assert found.headers["content-length"] == str(len(found.content))


BUSY = "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')"
HANGS = [
    pytest.param("while True: pass", "line 5", id="a loop"),
    pytest.param("import time; time.sleep(900)", "line 5", id="a blocking call"),
    pytest.param(BUSY.replace("\n", "; "), "line 5", id="a call that holds Python's lock"),
]


@pytest.mark.parametrize(("code", "place"), HANGS)
def test_a_hang_ends_with_its_line_and_the_next_request_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, place: str
) -> None:
    monkeypatch.setattr("hostelry.containers.lmi.http.custom.FORMATTER_LIMIT_S", 1.0)
    base = (
        INPUT
        + "@input_formatter\ndef slow(payload, **_):\n    if 'hang' in payload:\n"
        + f"        {code}\n    return payload\n"
    )

    async def run(it: Coded) -> tuple[httpx.Response, httpx.Response]:
        return await it.ask({"inputs": "a", "hang": 1}), await it.ask({"inputs": "a"})

    hung, next_one = with_code(tmp_path, base, run)
    assert hung.status_code == 424
    error = hung.json()["error"]
    assert "input_formatter of model.py did not end within 1 s" in error
    assert f"model.py {place} in slow" in error
    assert next_one.json()["generated_text"] == "a base answer"


def test_a_handler_that_waits_for_ever_is_named_by_its_line(tmp_path: Path) -> None:
    base = (
        HANDLE
        + "import asyncio\nasync def wait():\n    await asyncio.Event().wait()\n"
        + "async def handle(inputs):\n    if not inputs.is_empty():\n        await wait()\n"
    )
    found = answer(tmp_path, base, {"inputs": "a"}, properties="option.predict_timeout=1")
    assert found.status_code == 424
    assert "it was at model.py line 4 in wait" in found.json()["error"]


FAULTS = [
    pytest.param("raise KeyError('x')", "KeyError: 'x' (model.py line 4 in f)", id="an exception"),
    pytest.param("import sys; sys.exit(3)", "SystemExit: 3 (model.py line 4", id="an exit"),
    pytest.param("import os; os._exit(3)", "ended with status 3 during input_form", id="its end"),
    pytest.param("import os; os.abort()", "ended by signal 6 during input_form", id="an abort"),
    pytest.param("return 1", "returned int, not a dict", id="a wrong type"),
    pytest.param("return {'a': float('nan')}", "not JSON compliant", id="no JSON"),
    pytest.param("return {'a': 'x' * (20 << 20)}", "at most 16777216", id="a huge result"),
    pytest.param("return {'a': bytearray(4 << 30)}", "MemoryError", id="too much memory"),
    pytest.param("f(p)", "RecursionError", id="recursion"),
    pytest.param("return {'inputs': 7}", "inputs is 7", id="a payload the server refuses"),
]


@pytest.mark.parametrize(("code", "message"), FAULTS)
def test_a_fault_of_the_code_ends_its_request_alone(
    tmp_path: Path, code: str, message: str
) -> None:
    base = INPUT + f"@input_formatter\ndef f(p, **_):\n    if 'bad' in p: {code}\n    return p\n"

    async def run(it: Coded) -> tuple[httpx.Response, httpx.Response]:
        return await it.ask({"inputs": "a", "bad": 1}), await it.ask({"inputs": "a"})

    failed, next_one = with_code(tmp_path, base, run)
    assert failed.status_code == 424
    assert message in failed.json()["error"], failed.text
    assert next_one.json()["generated_text"] == "a base answer"


def test_a_killed_process_fails_its_calls_and_another_one_serves(tmp_path: Path) -> None:
    base = (
        HANDLE
        + "import asyncio\nasync def handle(inputs):\n"
        + "    if b'wait' in bytes(inputs.get_as_bytes() or b''):\n"
        + "        await asyncio.sleep(900)\n"
    )

    async def run(it: Coded) -> tuple[httpx.Response, httpx.Response]:
        waiting = asyncio.create_task(it.ask({"inputs": "wait"}))
        await asyncio.sleep(0.5)
        os.kill(it.base_pid(), signal.SIGKILL)
        return await waiting, await it.ask({"inputs": "a"})

    killed, next_one = with_code(tmp_path, base, run)
    assert "model.py ended by signal 9 during handle" in killed.json()["error"]
    assert killed.status_code == 424
    assert next_one.json()["generated_text"] == "a base answer"


def test_a_flood_of_output_is_drained_and_harms_nothing(tmp_path: Path) -> None:
    base = (
        INPUT
        + "@input_formatter\ndef f(p, **_):\n    for _ in range(20000): print('x' * 1000)\n"
        + "    print('y' * 5_000_000)\n    return p\n"
    )
    assert answer(tmp_path, base, {"inputs": "a"}).json() == {"generated_text": "a base answer"}


@cases(
    "code, message",
    case("an import", "import nothing_of_that_name", "No module named 'nothing_of"),
    case("DJL's", "import djl_python.huggingface", "djl_python.huggingface"),
    case("syntax", "def f(:", "SyntaxError"),
    case("an exit", "raise SystemExit(2)", "SystemExit: 2 (model.py line 1"),
    case("its end", "import os; os._exit(0)", "ended with status 0 during its load"),
    case("DJL's hook", "def register_adapter(i): pass", "loads adapters itself"),
    case("others'", "def model_fn(folder): pass", "belong to SageMaker's"),
    case("a mark of others",
        "from djl_python.input_parser import init_handler\n@init_handler\ndef f(): pass",
        "@init_handler"),
)  # fmt: skip
def test_code_that_cannot_be_loaded_fails_the_start(
    tmp_path: Path, code: str, message: str
) -> None:
    with pytest.raises(Refusal) as refused:
        answer(tmp_path, code, {"inputs": "a"})
    assert message in str(refused.value)
    assert str(tmp_path) not in str(refused.value), "the author sees no path of the host"


def test_code_that_hangs_when_it_is_loaded_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(author_code, "LOAD_LIMIT_S", 2.0)
    with pytest.raises(Refusal, match=r"did not end within 2 s; it was at model\.py line 2"):
        answer(tmp_path, "x = 1\nwhile True: pass\n", {"inputs": "a"})


def test_code_is_refused_where_the_operator_does_not_allow_it(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="HOSTELRY_CUSTOM_CODE=confined"):
        with_code(tmp_path, None, lambda it: it.ask({}), {"es": LABELS}, policy=CodePolicy.OFF)


USES_A_PACKAGE = (
    HANDLE
    + """
import os, toolz
async def handle(inputs):
    output = Output()
    secret = os.environ.get("HOSTELRY_COPY_KEY", "none")
    return output.add_as_json({"total": sum(toolz.take(2, [1, 2, 3])), "key": secret})
"""
)


@pytest.mark.parametrize("policy", [CodePolicy.CONFINED, CodePolicy.TRUSTED])
def test_code_has_the_packages_that_it_names(tmp_path: Path, policy: CodePolicy) -> None:
    write_code(tmp_path, USES_A_PACKAGE)
    (tmp_path / "requirements.txt").write_text("toolz==1.0.0\n")
    given = answer(tmp_path, USES_A_PACKAGE, {"inputs": "a"}, policy=policy)
    assert given.json() == {"total": 3, "key": "none"}


@cases(
    "text, message",
    case("an option", "-r other.txt", "must be a package's"),
    case("a URL", "a @ http://x/a.whl", "must be a package's"),
    case("a package that is not there", "no-such-package-of-hostelry", "cannot be installed"),
)  # fmt: skip
def test_requirements_that_are_not_installed_fail_the_start(
    tmp_path: Path, text: str, message: str
) -> None:
    write_code(tmp_path, USES_A_PACKAGE)
    (tmp_path / "requirements.txt").write_text(text)
    with pytest.raises(Refusal, match=message):
        answer(tmp_path, USES_A_PACKAGE, {"inputs": "a"})


def test_formatters_of_a_rolling_batch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"remove option\.rolling_batch"):
        answer(tmp_path, LABELS, {}, properties="option.rolling_batch=vllm")


REACHES = """
import json, os, pathlib, signal, socket, subprocess, tempfile
from djl_python import Output

def attempt(action):
    try:
        return repr(action())[:60]
    except BaseException as error:
        return type(error).__name__

def fork():
    if (pid := os.fork()) == 0:
        os._exit(0)
    return pid

def handle(inputs):
    if inputs.is_empty():
        return None
    parent = os.getppid()
    other = pathlib.Path(inputs.get_as_json()["other"])
    return Output().add_as_json({
        "own": attempt(lambda: pathlib.Path(__file__).read_text()[:1]),
        "scratch": attempt(lambda: pathlib.Path(tempfile.gettempdir(), "x").write_text("x")),
        "environment": [it for it in os.environ if it.startswith(("HOSTELRY", "HF_", "AWS_"))],
        "other code": attempt(lambda: other.read_text()),
        "own folder": attempt(lambda: pathlib.Path("x").write_text("x")),
        "server's variables": attempt(lambda: open(f"/proc/{parent}/environ").read()),
        "server's memory": attempt(lambda: open(f"/proc/{parent}/mem", "rb").read(1)),
        "passwords": attempt(lambda: open("/etc/passwd").read()),
        "list of /": attempt(lambda: os.listdir("/")),
        "kill": attempt(lambda: os.kill(parent, signal.SIGKILL)),
        "kill all": attempt(lambda: os.kill(-1, signal.SIGKILL)),
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", 9))),
        "unix": attempt(lambda: socket.socket(socket.AF_UNIX)),
        "program": attempt(lambda: subprocess.run(["/bin/true"])),
        "fork": attempt(fork),
        "priority": attempt(lambda: os.setpriority(os.PRIO_PROCESS, parent, 19)),
        "mode": attempt(lambda: os.chmod(__file__, 0o777)),
        "itself": attempt(lambda: os.kill(os.getpid(), 0)),
    })
"""
ALLOWED = {"own": "'\\n'", "scratch": "1", "environment": [], "itself": "None"}


def test_confined_code_reaches_nothing_of_the_server_or_of_others(tmp_path: Path) -> None:
    other = write_code(tmp_path / "other", "secret = 1") / "model.py"
    found = answer(tmp_path / "mine", REACHES, {"other": str(other)}).json()
    assert {name: found.pop(name) for name in ALLOWED} == ALLOWED
    denied = {"PermissionError"}
    assert {name: it for name, it in found.items() if it not in denied} == {}


def test_an_adapters_code_reads_neither_anothers_nor_the_models(tmp_path: Path) -> None:
    reads = (
        OUTPUT
        + """
import pathlib
@output_formatter
def f(response):
    found = {}
    for place in ("model.py", "adapters/fr/model.py", "adapters/es/model.py", "tokenizer.json"):
        try:
            found[place] = bool(pathlib.Path(FOLDER, place).read_text())
        except PermissionError:
            found[place] = False
    return found
""".replace("FOLDER", repr(str(tmp_path)))
    )

    async def run(it: Coded) -> Any:
        return (await it.ask({"inputs": "a", "adapters": "es"})).json()

    found = with_code(tmp_path, "x = 1", run, {"es": reads, "fr": LABELS})
    assert found == {
        "model.py": False,
        "adapters/fr/model.py": False,
        "adapters/es/model.py": True,
        "tokenizer.json": True,
    }


def test_registering_updating_and_removing_an_adapter_changes_its_code(tmp_path: Path) -> None:
    async def run(it: Coded) -> list[Any]:
        seen: list[Any] = []
        for name, path in (("one", "/adapters"), ("two", "/adapters/de/update")):
            folder = write_code(tmp_path / name, LABELS.replace("NAME", name))
            done = await it.client.post(f"{path}?name=de&src={folder}")
            assert done.status_code == 200, done.text
            seen.append((await it.ask({"inputs": "a", "adapters": "de"})).json()["by"])
        bad = write_code(tmp_path / "bad", "import nothing_of_that_name")
        refused = await it.client.post(f"/adapters/de/update?src={bad}")
        seen += [refused.status_code, "nothing_of_that_name" in refused.text]
        seen.append((await it.ask({"inputs": "a", "adapters": "de"})).json()["by"])
        seen.append((await it.client.delete("/adapters/de")).status_code)
        seen.append(len(it.code._hosts))
        return seen

    assert with_code(tmp_path, None, run) == ["one", "two", 424, True, "two", 200, 0]


def test_no_more_adapters_run_code_than_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(author_code, "MAX_ADAPTER_PROCESSES", 2)

    async def run(it: Coded) -> list[Any]:
        seen = []
        for name in ("es", "fr", "de", "es"):
            if name == "de":
                place = write_code(tmp_path / "de", LABELS.replace("NAME", "de"))
                await it.client.post(f"/adapters?name=de&src={place}")
            seen.append((await it.ask({"inputs": "a", "adapters": name})).json()["by"])
            await asyncio.sleep(0.2)
            assert sum(host.is_running for host in it.code._hosts) <= 2
        return seen

    adapters = {name: LABELS.replace("NAME", name) for name in ("es", "fr")}
    assert with_code(tmp_path, None, run, adapters) == ["es", "fr", "de", "es"]


def test_sessions_are_opened_used_and_closed_over_http(tmp_path: Path) -> None:
    async def run(it: Coded) -> list[Any]:
        opened = await it.ask({"requestType": "NEW_SESSION"})
        session_id, _, expires = opened.headers["x-amzn-sagemaker-session-id"].partition("; ")
        header = {"X-Amzn-SageMaker-Session-Id": session_id}
        used = await it.ask({"inputs": "a"}, **header)
        closed = await it.ask({"requestType": "CLOSE"}, **header)
        after = await it.ask({"inputs": "a"}, **header)
        both = await it.ask({"requestType": "CLOSE", "inputs": "a"})
        return [
            opened.json() == {"result": f"Session {session_id} created"},
            expires.startswith("Expires="),
            used.status_code,
            closed.headers["x-amzn-sagemaker-closed-session-id"] == session_id,
            after.status_code,
            "session not found" in after.json()["error"],
            both.status_code,
        ]

    assert with_code(tmp_path, None, run) == [True, True, 200, True, 424, True, 424]


def test_this_machine_confines_processes() -> None:
    try:
        check_possible()
    except ConfinementError as error:
        pytest.fail(str(error))

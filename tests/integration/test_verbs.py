"""The commands that people type, against one platform, through the real command line."""

import contextlib
import json
import os
import pty
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.platform import CLI, Platform, until
from tests.integration.verbs_rig import (
    BASE,
    ECHO,
    ENDPOINT,
    component_endpoint,
    model_endpoint,
    verbs_platform,
    wait_endpoint,
)
from tests.selection import first_alone

from hostelry.base.clock import monotonic_s

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]
ADAPTER = "tiny-es"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verbs")


@pytest.fixture(scope="module")
def platform(folder: Path) -> Iterator[Platform]:
    with verbs_platform(folder) as running:
        yield running


@pytest.fixture(scope="module")
def adapter(platform: Platform, folder: Path) -> str:
    source = str(folder / "model" / "adapters" / "es")
    added = words(platform, "adapters add", BASE, ADAPTER, source)
    assert f"{ADAPTER} is InService" in added.stdout
    return ADAPTER


def words(
    platform: Platform, command: str, *arguments: str, stdin: bytes = b"", code: int = 0
) -> "subprocess.CompletedProcess[str]":
    """Run a command of one or two words with `stdin` as its standard input."""
    done = subprocess.run(
        [*CLI, *command.split(), *arguments, "--home", str(platform.home.root)],
        env=platform.environment,
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
    )
    texts = [it.decode("utf-8", "replace") for it in (done.stdout, done.stderr)]
    assert done.returncode == code, texts
    assert "Traceback" not in texts[1], texts[1]
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def test_ls_has_a_line_for_each_model(platform: Platform, adapter: str) -> None:
    lines = words(platform, "ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", ECHO, ENDPOINT, BASE, adapter]
    rows = {it["name"]: it for it in json.loads(words(platform, "ls", "--json").stdout)}
    assert rows[adapter]["base"] == BASE
    assert (rows[BASE]["ready"], rows[BASE]["desired"]) == (1, 1)
    assert rows[ECHO]["instances"] == "1 x ml.m5.large"
    assert "did you mean tiny" in words(platform, "ls", "tinny", code=1).stderr


def test_a_failure_is_listed_with_its_reason(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    model_endpoint(sagemaker, "broken", mode="exit")

    def listed() -> str:
        return words(platform, "ls", "broken").stdout

    until(lambda: "! " in listed(), "the reason is listed", 60)
    assert "of group /aws/sagemaker/Endpoints/broken" in listed()
    words(platform, "rm", "broken", "--yes")


def test_chat_answers_a_pipe_and_adapters_answer_otherwise(
    platform: Platform, adapter: str
) -> None:
    greedy = ("--set", "temperature=0", "--set", "max_tokens=12")
    plain = words(platform, "chat", BASE, *greedy, stdin=b"hello there")
    assert "tokens, first after" in plain.stderr
    assert all(it.isprintable() or it in "\n\t" for it in plain.stdout), "no control characters"
    by_base = words(platform, "chat", f"{BASE}:{adapter}", *greedy, "--once", "hello there")
    by_name = words(platform, "chat", adapter, *greedy, "--once", "hello there")
    assert by_base.stdout == by_name.stdout != plain.stdout
    only = words(platform, "chat", ENDPOINT, "--once", "x", code=1)
    assert "has several models, name one" in only.stderr
    assert "no question" in words(platform, "chat", BASE, code=1).stderr
    assert (
        "Adapter none is not registered"
        in words(platform, "chat", f"{BASE}:none", "--once", "x", code=1).stderr
    )
    assert "not an LLM's" in words(platform, "chat", ECHO, "--once", "x", code=1).stderr


def test_a_conversation_on_a_terminal(platform: Platform, adapter: str) -> None:
    with Terminal(platform, "chat", BASE, "--set", "max_tokens=6") as terminal:
        terminal.expect(f"{BASE}> ")
        terminal.type("hello", "first after")
        terminal.type("/adapters", f"{adapter}  InService")
        terminal.type(f"/adapter {adapter}", f"{adapter} answers from now on")
        terminal.type("and now?", "first after")
        terminal.type("/set temperature hot", "from 0 to 2, not hot")
        terminal.interrupt("(/quit or Ctrl-D ends)")
        assert terminal.ended(b"\x04") == 0


def test_invoke_passes_bytes_and_shows_the_containers_errors(
    platform: Platform, adapter: str, tmp_path: Path
) -> None:
    file = tmp_path / "bytes.bin"
    file.write_bytes(bytes(range(256)) * 100)
    command = [*CLI, "invoke", ECHO, str(file), "--home", str(platform.home.root)]
    for more in ([], ["--stream"]):
        done = subprocess.run(
            [*command, *more], env=platform.environment, capture_output=True, check=True
        )
        assert done.stdout == file.read_bytes(), "not a byte is changed"
        assert b"25600 B, request " in done.stderr
    body = json.dumps({"inputs": "hi", "parameters": {"max_new_tokens": 4}}).encode()
    found = json.loads(
        words(platform, "invoke", BASE, "-", "--adapter", adapter, "--json", stdin=body).stdout
    )
    assert found["status"] == 200
    assert "generated_text" in found["body"]
    refused = words(platform, "invoke", BASE, "-", "--adapter", "none", stdin=body, code=1)
    assert "the model answered 424: Adapter none is not registered" in refused.stderr
    gone = words(platform, "invoke", BASE, str(tmp_path / "gone"), code=1)
    assert "cannot be read" in gone.stderr


def test_load_measures_an_llm_and_compares_runs(
    platform: Platform, adapter: str, tmp_path: Path
) -> None:
    saved = str(tmp_path / "before.json")
    options = ("--duration", "2", "--concurrency", "2", "--max-tokens", "8")
    first = words(platform, "load", BASE, *options, "--save", saved).stdout
    for name in ("latency", "first token", "inter-token", "tokens/s", "errors  none"):
        assert name in first
    second = words(platform, "load", BASE, *options, "--adapters", adapter, "--compare", saved)
    assert f"Not the same adapters: None before, {adapter} now." in second.stdout
    assert "ratio" in second.stdout
    refused = words(platform, "load", BASE, "--adapters", "none", code=1)
    assert "the first request failed: Adapter none is not registered" in refused.stderr


def test_load_counts_from_when_a_request_was_due(platform: Platform, tmp_path: Path) -> None:
    file = tmp_path / "slow.txt"
    file.write_text("sleep 0.2")
    options = ("--body", str(file), "--rate", "20", "--duration", "3")
    done = words(platform, "load", ECHO, *options, "--concurrency", "1", "--json")
    result = json.loads(done.stdout)
    assert result["requests"] == 60, "each request that was due is counted"
    assert result["unsent"] == result["errors"]["unsent"] > 20
    assert result["latency_ms"]["p50"] > 600, "a wait for a connection is latency"
    assert "never sent" in result["warnings"][-1]


def test_ctrl_c_ends_a_load_test_with_its_figures(platform: Platform, tmp_path: Path) -> None:
    file = tmp_path / "hello.txt"
    file.write_text("hello")
    with Terminal(platform, "load", ECHO, "--body", str(file), "--duration", "300") as terminal:
        terminal.expect("in flight")
        terminal.press(b"\x03", "errors  none")
        assert terminal.ended() == 0


def test_load_finds_the_concurrency_that_keeps_a_limit(platform: Platform, tmp_path: Path) -> None:
    file, saved = tmp_path / "slow.txt", tmp_path / "found.json"
    file.write_text("sleep 0.05")
    options = ("--find", "--body", str(file), "--duration", "1")
    bound = (*options, "--concurrency", "2", "--max-latency-ms", "30000", "--save", str(saved))
    done = words(platform, "load", ECHO, *bound)
    assert "echo: the limits hold at concurrency 2" in done.stdout
    assert "The search ends at concurrency 2" in done.stdout
    assert "concurrency 2: " in done.stderr, "each step is shown"
    search = json.loads(saved.read_text())["search"]
    assert (search["concurrency"], search["limited_by"]) == (2, "upper bound")
    assert [it["concurrency"] for it in search["steps"]] == [1, 2]
    none = words(platform, "load", ECHO, *options, "--max-latency-ms", "20", "--json", code=1)
    assert json.loads(none.stdout)["search"]["concurrency"] is None
    assert "no concurrency was found at which the limits hold" in none.stderr
    no_tokens = words(platform, "load", ECHO, *options, "--max-token-ms", "20", code=1)
    assert "--max-token-ms: the answer has no tokens" in no_tokens.stderr


@pytest.mark.thorough
def test_a_search_is_compared_and_finds_with_a_limit_of_tokens(
    platform: Platform, tmp_path: Path
) -> None:
    file, saved = tmp_path / "slow.txt", tmp_path / "found.json"
    file.write_text("sleep 0.05")
    bound = ("--find", "--concurrency", "1", "--max-latency-ms", "30000", "--save", str(saved))
    words(platform, "load", ECHO, *bound, "--body", str(file), "--duration", "1")
    again = ("--body", str(file), "--duration", "1", "--compare", str(saved))
    compared = words(platform, "load", ECHO, *again)
    assert "Not the same max_latency_ms: 30000.0 before, None now." in compared.stdout
    assert "ratio" in compared.stdout
    tokens = ("--find", "--duration", "1", "--max-tokens", "8", "--concurrency", "1")
    llm = words(platform, "load", BASE, *tokens, "--max-first-token-ms", "30000")
    assert "FIRST TOKEN P95" in llm.stdout


@pytest.mark.parametrize("name", first_alone([ECHO, BASE]))
def test_ctrl_c_ends_a_sweep_and_removes_its_copy(
    platform: Platform, tmp_path: Path, name: str
) -> None:
    saved = tmp_path / "swept.json"
    sent = ("--prompt", "hello") if name == BASE else ("--body", str(saved.with_suffix(".txt")))
    saved.with_suffix(".txt").write_text("hello")
    sweeps = ("--sweep", "env:SM_SWEPT=1,2", "--sweep", "concurrency=1,2")
    options = (*sent, *sweeps, "--duration", "0.5", "--save", str(saved))
    with Terminal(platform, "load", name, *options) as terminal:
        terminal.expect("env:SM_SWEPT=1 concurrency=2:")
        terminal.expect("model" if name == ECHO else "endpoint config")
        terminal.expect("env:SM_SWEPT=2 concurrency=1:")
        terminal.press(b"\x03", "env:SM_SWEPT  concurrency  REQ/S")
        assert terminal.ended() == 130
    cells = json.loads(saved.read_text())["sweep"]["cells"]
    measured = [(it["values"]["env:SM_SWEPT"], it["values"]["concurrency"]) for it in cells]
    assert measured[:2] == [("1", 1), ("1", 2)]
    assert all(it["result"]["ok"] for it in cells)
    rows = json.loads(words(platform, "ls", "--json").stdout)
    assert [it["name"] for it in rows if "sweep" in it["name"]] == []


@pytest.mark.thorough
def test_scale_waits_and_shows_what_fits(platform: Platform) -> None:
    assert "2 of 2 ready" in words(platform, "scale", ECHO, "--copies", "2").stdout
    bounds = ("--min", "1", "--max", "2", "--target", "3")
    assert "3 requests under way on each" in words(platform, "scale", ECHO, *bounds).stderr
    outside = words(platform, "scale", ECHO, "--copies", "3", "--wait", "0", code=1)
    assert "will leave 3 again" in outside.stderr
    found = words(platform, "scale", BASE, "--copies", "3", code=1)
    assert "2 of 3 fit and are ready; the rest waits for room" in found.stderr
    assert "the largest free block is 4 CPUs" in found.stderr
    refused = words(platform, "scale", BASE, "--copies", "1", code=1)
    assert "Cannot update in-progress inference component" in refused.stderr


def test_rm_removes_what_is_an_endpoints_alone(platform: Platform) -> None:
    sagemaker = platform.boto3("sagemaker")
    model_endpoint(sagemaker, "shared")
    sagemaker.create_endpoint_config(
        EndpointConfigName="spare",
        ProductionVariants=[
            {
                "VariantName": "A",
                "ModelName": "shared",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }
        ],
    )
    component_endpoint(sagemaker, "empty")
    wait_endpoint(sagemaker, "empty")
    refused = words(platform, "rm", "shared", "empty", code=1)
    assert "give --yes" in refused.stderr
    done = words(platform, "rm", "shared", "empty", "--yes")
    assert "model shared stays: configuration spare uses it" in done.stderr
    names = [it["EndpointName"] for it in sagemaker.list_endpoints()["Endpoints"]]
    assert not {"shared", "empty"}.intersection(names)
    assert sagemaker.describe_model(ModelName="shared")["ModelName"] == "shared"
    sagemaker.delete_endpoint_config(EndpointConfigName="spare")
    again = words(platform, "rm", "shared", "--yes")
    assert "model shared removed" in again.stderr, "what was left goes by the same name"
    assert "nothing to remove" in words(platform, "rm", "shared", "--yes").stderr


def test_adapters_are_listed_and_removed_with_their_data(platform: Platform, folder: Path) -> None:
    source = str(folder / "model" / "adapters" / "fr")
    words(platform, "adapters add", BASE, "tiny-fr", source)
    words(platform, "adapters add", BASE, "tiny-fr", source)
    assert "tiny-fr" in words(platform, "adapters ls", BASE).stdout
    assert (
        "is not an adapter"
        in words(platform, "adapters add", BASE, "tiny-x", str(folder), code=1).stderr
    )
    other = str(folder / "outside")
    assert (
        "`hostelry rm component/tiny-fr` first"
        in words(platform, "adapters add", BASE, "tiny-fr", other, code=1).stderr
    )
    done = words(platform, "adapters rm", BASE, "tiny-fr", "--yes", "--with-data")
    assert "removed, 1 objects" in done.stderr
    assert "tiny-fr" not in words(platform, "adapters ls", BASE).stdout


@cases(
    "command",
    case("ls", "ls"),
    case("chat", "chat x --once x"),
    case("invoke", "invoke x /dev/null"),
    case("load", "load x"),
    case("rm", "rm x"),
    case("scale", "scale x --copies 1"),
    case("adapters", "adapters ls x"),
)
def test_without_a_platform_there_is_a_way_on(command: str, tmp_path: Path) -> None:
    given = [*CLI, *command.split(), "--home", str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("hostelry: there is no hostelry in"), done.stderr


class Terminal:
    """A command on a separate terminal."""

    def __init__(self, platform: Platform, *arguments: str) -> None:
        self._command = [*CLI, *arguments, "--home", str(platform.home.root)]
        self._environment = {**platform.environment, "TERM": "dumb"}
        self._seen = ""

    def __enter__(self) -> "Terminal":
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.execve(self._command[0], self._command, self._environment)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def type(self, line: str, text: str) -> None:
        """Type a line, and wait for `text` after it."""
        self.press(f"{line}\n".encode(), text)

    def press(self, keys: bytes, text: str) -> None:
        self._seen = ""
        os.write(self._file, keys)
        self.expect(text)

    def interrupt(self, text: str) -> None:
        """Press Ctrl-C until `text` comes: readline may miss one as it begins to wait for keys.

        It is pressed again after silence only: a second one right after the first ends the program.
        """
        deadline_s = monotonic_s() + 60
        self._seen = ""
        while text not in self._seen:
            assert monotonic_s() < deadline_s, f"{text!r} did not come: {self._seen!r}"
            os.write(self._file, b"\x03")
            while text not in self._seen and select.select([self._file], [], [], 2.0)[0]:
                self._seen += os.read(self._file, 65536).decode("utf-8", "replace")

    def expect(self, text: str) -> None:
        deadline_s = monotonic_s() + 60
        while text not in self._seen:
            assert monotonic_s() < deadline_s, f"{text!r} did not come: {self._seen!r}"
            if select.select([self._file], [], [], 0.2)[0]:
                self._seen += os.read(self._file, 65536).decode("utf-8", "replace")

    def ended(self, keys: bytes = b"") -> int:
        """Press `keys` until the command ends, because one may be missed. Returns the exit code."""
        deadline_s = monotonic_s() + 60
        while monotonic_s() < deadline_s:
            with contextlib.suppress(OSError):  # it has closed the terminal
                os.write(self._file, keys)
                if select.select([self._file], [], [], 2.0)[0]:
                    os.read(self._file, 65536)
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it did not end after {keys!r}")

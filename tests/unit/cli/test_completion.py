"""The protocol of completion as bash speaks it, with a control that answers or does not."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.ports import free_ports
from hostelry.cli.completion import KEPT_VARIABLE, filter_names, join_words
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials

NAMES = {"endpoints": ["chat", "chairs"], "components": ["base", "base-fr"], "copies": ["c-77"]}
JOBS = {"jobs": [{"id": "job-1"}], "batches": [{"id": "batch_2"}]}
SHELL = """
set -e
source <(hostelry completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_hostelry_completion hostelry
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Answers(BaseHTTPRequestHandler):
    pages: ClassVar[dict[str, object]] = {"/internal/names": NAMES, "/internal/jobs": JOBS}

    def do_GET(self) -> None:
        body = msgspec.json.encode(self.pages[self.path.partition("?")[0]])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def home_with(root: Path, port: int) -> Home:
    home = Home(root / "home")
    home.root.mkdir()
    save_config(home, UpConfig(control_port=port, jobs_port=port))
    save_credentials(home, new_credentials("111122223333", "us-east-1", None, None))
    return home


def completed(home: Home, words: list[str]) -> list[str]:
    """bash's completions of the last word. Fails if anything is written to standard error."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", SHELL, "bash", "hostelry", *words]
    environment = {"PATH": path, "HOSTELRY_HOME": str(home.root), "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@cases(
    "words, found",
    case("a command", ["scali"], ["scaling"]),
    case("a command of a group", ["jobs", "ca"], ["cancel"]),
    case("an option", ["status", "--endp"], ["--endpoint"]),
    case("an endpoint", ["status", "--endpoint", "cha"], ["chairs", "chat"]),
    case("a component", ["explain", "base-"], ["base-fr"]),
    case("a copy", ["logs", "c-"], ["c-77"]),
    case("a job", ["jobs", "show", "j"], ["job-1"]),
    case("a batch", ["jobs", "cancel", ""], ["batch_2"]),
)
def test_bash_completes(words: list[str], found: list[str], port: int, tmp_path: Path) -> None:
    assert completed(home_with(tmp_path, port), words) == found


def test_bash_is_offered_nothing_where_the_platform_is_down(tmp_path: Path) -> None:
    down = home_with(tmp_path, free_ports(1)[0])
    assert completed(down, ["status", "--endpoint", ""]) == []
    assert completed(Home(tmp_path / "none"), ["logs", ""]) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    command = [sys.executable, "-m", "hostelry.cli.main", "completion", shell]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"_HOSTELRY_COMPLETE=complete_{shell}" in script


@cases(
    "words, place, joined, joined_place, kept",
    case("words without colons stay", "hostelry st", 1, "hostelry st", 1, ""),
    case("an adapter", "hostelry chat b : e", 4, "hostelry chat b:e", 2, "b:"),
    case("no letter of it yet", "hostelry chat b :", 3, "hostelry chat b:", 2, "b:"),
    case("an address", "hostelry -e http : //a : 80 st", 7, "hostelry -e http://a:80 st", 3, ""),
    case("what follows is left out", "hostelry a : b c", 2, "hostelry a:", 1, "a:"),
    case("a place that is not there", "hostelry a", 7, "hostelry a", 7, None),
)
def test_words_are_joined_at_colons(
    words: str, place: int, joined: str, joined_place: int, kept: str | None
) -> None:
    environment = {"COMP_WORDS": words.replace(" ", "\n"), "COMP_CWORD": str(place)}
    join_words(environment)
    assert environment["COMP_WORDS"].split("\n") == joined.split(" ")
    assert environment["COMP_CWORD"] == str(joined_place)
    assert environment.get(KEPT_VARIABLE) == kept


@cases(
    "incomplete, kept, found",
    case("each name once, in order", "", "", ["base:es", "base:fr", "chat"]),
    case("without what the shell keeps", "base:", "base:", ["es", "fr"]),
    case("none that begins otherwise", "x", "", []),
)
def test_offered(incomplete: str, kept: str, found: list[str]) -> None:
    assert filter_names(["chat", "base:fr", "base:es", "chat"], incomplete, kept) == found

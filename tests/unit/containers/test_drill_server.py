"""The drill server takes exactly the resources that a request names."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hostelry.base.ports import free_port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "hostelry.containers.drill"],
        env={**os.environ, "SAGEMAKER_BIND_TO_PORT": str(port), "DRILL_ANSWER": "v2"},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline()  # it is up
    yield process, f"http://127.0.0.1:{port}/invocations"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def asked(url: str, **instructions: object) -> dict[str, object]:
    answer = httpx.post(
        url, content=json.dumps(instructions), timeout=30, trust_env=False, verify=False
    )
    content: dict[str, object] = answer.json()
    return content


def test_it_writes_as_many_bytes_as_asked(
    server: tuple["subprocess.Popen[bytes]", str], tmp_path: Path
) -> None:
    asked(server[1], write_bytes=5_000_000)
    assert [it.stat().st_size for it in tmp_path.iterdir()] == [5_000_000]


def test_it_answers_a_digest_refuses_for_a_given_reason_and_fails_as_a_given_version(
    server: tuple["subprocess.Popen[bytes]", str],
) -> None:
    url = server[1]
    answers = [
        httpx.post(url, json=instruction, trust_env=False, verify=False)
        for instruction in (
            {"digest": "r7 abc"},
            {"refuse": "r8 is refused"},
            {"fail_if": "v2"},
            {"fail_if": "v1", "digest": "go"},
        )
    ]
    assert [(it.status_code, it.text) for it in answers] == [
        (200, f"{hashlib.sha256(b'r7 abc').hexdigest()} r7 abc"),
        (400, "r8 is refused"),
        (500, "this version is broken"),
        (200, f"{hashlib.sha256(b'go').hexdigest()} go"),
    ]


def test_it_starts_as_many_processes_as_asked(
    server: tuple["subprocess.Popen[bytes]", str],
) -> None:
    process, url = server
    assert asked(url, fork=3)["forked"] == 3
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    assert sum(len(it.read_text().split()) for it in children) == 3


def test_it_hangs(server: tuple["subprocess.Popen[bytes]", str]) -> None:
    process, url = server
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, content=b'{"hang": true}', timeout=1.0, trust_env=False, verify=False)
    assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

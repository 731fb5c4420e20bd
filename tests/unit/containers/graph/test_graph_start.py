"""A graph's server at its start: its file, and the room of its caches."""

from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.containers.graph.__main__ import build_caches, read_plan
from hostelry.containers.graph.functions import build_launch
from hostelry.graph.steps import GraphDocumentError

CACHED = """
output: a
steps:
  a: {cache: {of: b, ttl_s: 60, max_bytes: 600}}
  b: {cache: {of: c, ttl_s: 60, max_bytes: 500}}
  c: {call: {endpoint: e}}
"""


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        pytest.param(None, TerminalError, "the model's archive has no graph.yaml", id="no file"),
        pytest.param(b"\xff", TerminalError, "graph.yaml cannot be read", id="no text"),
        pytest.param(b"steps: {}", GraphDocumentError, "missing required field `output`",
                     id="no graph"),
    ],
)  # fmt: skip
def test_a_folder_without_a_graph_ends_the_start(
    tmp_path: Path, text: bytes | None, error: type[Exception], reason: str
) -> None:
    if text is not None:
        (tmp_path / "graph.yaml").write_bytes(text)
    with pytest.raises(error, match=reason):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("reserved", "fits"),
    [
        pytest.param("", True, id="no reservation"),
        pytest.param("1100", True, id="just enough"),
        pytest.param("1099", False, id="too little"),
    ],
)
def test_caches_take_no_more_than_is_reserved(tmp_path: Path, reserved: str, *, fits: bool) -> None:
    (tmp_path / "graph.yaml").write_text(CACHED)
    plan, environment = read_plan(tmp_path), {"HOSTELRY_MEMORY_BYTES": reserved}
    if fits:
        assert set(build_caches(plan, environment)) == {"a", "b"}
        return
    with pytest.raises(TerminalError, match=r"may take 1100 bytes .* has reserved 1099"):
        build_caches(plan, environment)


@pytest.mark.parametrize("policy", ["off", "on", "Trusted"])
def test_functions_run_where_the_operator_lets_them(tmp_path: Path, policy: str) -> None:
    with pytest.raises(TerminalError, match=f"HOSTELRY_CUSTOM_CODE is '{policy}'"):
        build_launch(tmp_path, ("f:g",), {"HOSTELRY_CUSTOM_CODE": policy})


def test_a_process_of_functions_gets_no_variable_with_a_secret(tmp_path: Path) -> None:
    given = {"HOSTELRY_CUSTOM_CODE": "trusted", "AWS_SECRET_ACCESS_KEY": "s", "HF_TOKEN": "t",
             "LANG": "C"}  # fmt: skip
    launch = build_launch(tmp_path, ("f:g",), given)
    secrets = {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "HOSTELRY_CUSTOM_CODE"}
    assert not secrets & {*launch.environment}
    assert launch.environment["LANG"] == "C"

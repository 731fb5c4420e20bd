"""The choice of a tritonserver and its backends; and the rule that follows for a copy."""

from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.program import find_program
from hostelry.domain.model import Container
from hostelry.fleet.agent.orders import rule_of

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
TRUSTED = {"HOSTELRY_CUSTOM_CODE": "trusted"}


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A tritonserver of the operator's."""
    program = tmp_path / "bin" / "tritonserver"
    for name in ("python", "onnxruntime", "empty", "vllm"):
        (tmp_path / "backends" / name).mkdir(parents=True)
    for file in ("python/libtriton_python.so", "onnxruntime/libtriton_onnxruntime.so",
                 "vllm/model.py"):  # fmt: skip
        (tmp_path / "backends" / file).touch()
    program.parent.mkdir()
    program.touch(0o755)
    return program


def test_the_operators_server_comes_first_with_its_backends(server: Path, tmp_path: Path) -> None:
    env = {"PATH": f"/none:{server.parent}", "LD_LIBRARY_PATH": "/opt/lib", "PYTHONPATH": "/x"}
    found = find_program(env, tmp_path)
    assert found.path == server
    assert found.backend_names == {"python", "onnxruntime", "vllm"}
    assert found.variables["LD_LIBRARY_PATH"] == "/opt/lib"
    assert "PYTHONPATH" not in found.variables


def test_without_any_the_failure_names_the_command_that_installs_one(tmp_path: Path) -> None:
    env = {"PATH": "/none", "HOSTELRY_RUNTIMES_DIR": str(tmp_path)}
    with pytest.raises(TerminalError, match="hostelry runtimes install triton"):
        find_program(env, tmp_path)


@pytest.mark.parametrize(
    ("has_server", "runtime"),
    [
        pytest.param(False, "triton", id="the runtime is installed"),
        pytest.param(True, None, id="nothing is installed beside the operator's"),
    ],
)
def test_a_copy_needs_the_runtime_only_without_a_server(
    has_server: bool, runtime: str | None, server: Path, tmp_path: Path
) -> None:
    operator = {**TRUSTED, "PATH": str(server.parent) if has_server else "/none"}
    rule = rule_of(Container(image=IMAGE), tmp_path / "none.toml", operator, no_own_user="none")
    assert (rule.kind, rule.runtime) == ("triton", runtime)


def test_models_are_code_and_need_a_user_or_the_operators_word(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match="HOSTELRY_CUSTOM_CODE=trusted"):
        rule_of(Container(image=IMAGE), tmp_path / "none.toml", {}, no_own_user="none")
    assert rule_of(Container(image=IMAGE), tmp_path / "none.toml", {}, no_own_user=None)

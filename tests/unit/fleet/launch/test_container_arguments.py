"""Command lines for a container engine, and the meaning of its answers."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.fleet.launch.container_arguments import (
    BIND_LABEL,
    ContainerPlan,
    ContainerState,
    EngineFacts,
    ImageFacts,
    check_reference,
    container_name,
    describe_container_exit,
    describe_failed_run,
    environment_file,
    inherited_variables,
    last_lines,
    parse_images,
    parse_state,
    run_arguments,
)
from hostelry.fleet.launch.container_order import ContainerOrder

MIB = 1024**2
PODMAN = EngineFacts(
    kind="podman", program="/usr/bin/podman", version="4", max_files=20, max_processes=30
)
DOCKER = EngineFacts(kind="docker", program="/usr/bin/docker", version="28")
IMAGE = ImageFacts(id="sha256:abc", labels={})
BINDING = ImageFacts(id="sha256:abc", labels={BIND_LABEL: "true"})
FOLDER = Path("/home/me/instances/i-1/copies/c-1")
ORDER = ContainerOrder(
    image="mine:1",
    network="none",
    port=5001,
    model_folder=Path("/cache/k"),
    mounts={},
    cpus=None,
    max_memory_bytes=None,
    devices=(),
    pull=True,
    pull_timeout_s=60.0,
)
PLAN = ContainerPlan(
    order=ORDER, folder=FOLDER, arguments=["serve"], environment={"A": "1", "B": "x\ny"}
)


def argv(engine: EngineFacts = PODMAN, image: ImageFacts = IMAGE, **order: Any) -> list[str]:
    plan = replace(PLAN, order=dataclasses.replace(ORDER, **order))
    return run_arguments(engine, image, plan)


def test_a_container_gets_what_the_contract_names() -> None:
    given = argv()
    assert given[:3] == ["/usr/bin/podman", "run", "--detach"]
    assert given[-2:] == ["sha256:abc", "serve"], "the image that was looked at, and its arguments"
    assert "--mount=type=bind,source=/cache/k,target=/opt/ml/model,readonly" in given
    assert "--stop-signal=SIGTERM" in given
    assert "--pull=never" in given
    assert f"--label=hostelry.copy={FOLDER}" in given
    assert "--label=hostelry.instance=/home/me/instances/i-1" in given


def test_a_container_is_shut_in() -> None:
    given = argv()
    for option in ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"):
        assert option in given
    assert "--pids-limit=4096" in given
    assert not [it for it in given if it.startswith(("--privileged", "--publish", "--device"))]


@pytest.mark.parametrize(
    ("order", "engine", "options"),
    [
        pytest.param({"cpus": 1.5}, PODMAN, ["--cpus=1.5"], id="a share of the CPUs"),
        pytest.param(
            {"max_memory_bytes": 64 * MIB},
            PODMAN,
            [f"--memory={64 * MIB}b", f"--memory-swap={64 * MIB}b"],
            id="a bound on memory, without swap",
        ),
        pytest.param(
            {"devices": ("0", "3")},
            PODMAN,
            ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=3"],
            id="devices for Podman",
        ),
        pytest.param(
            {"devices": ("0", "3")}, DOCKER, ['--gpus="device=0,3"'], id="devices for Docker"
        ),
        pytest.param(
            {"network": "bridge"},
            DOCKER,
            ["--network=bridge", "--publish=127.0.0.1:5001:8080"],
            id="a bridge, reached on loopback only",
        ),
        pytest.param({}, PODMAN, ["--log-driver=passthrough"], id="Podman's containers log"),
        pytest.param({}, PODMAN, ["--ulimit=nofile=20:20"], id="no more files than the agent may"),
        pytest.param(
            {},
            DOCKER,
            ["--log-driver=local", "--log-opt=max-file=2"],  # it refuses 1
            id="Docker's log is bounded and followed",
        ),
        pytest.param(
            {"mounts": {"/opt/ml/artifacts/HF_MODEL_ID": Path("/cache/h")}},
            PODMAN,
            ["--mount=type=bind,source=/cache/h,target=/opt/ml/artifacts/HF_MODEL_ID,readonly"],
            id="an artifact that a variable named",
        ),
    ],
)
def test_options(order: dict[str, Any], engine: EngineFacts, options: list[str]) -> None:
    given = argv(engine, **order)
    assert [it for it in options if it not in given] == []


def test_the_runtime_is_asked_for_before_the_command() -> None:
    assert argv(replace(PODMAN, runtime="runc"))[:4] == [
        "/usr/bin/podman",
        "--runtime",
        "runc",
        "run",
    ]
    assert "--runtime" not in argv(replace(DOCKER, runtime="runc"))


def test_the_machines_network_is_for_images_that_listen_on_the_given_port() -> None:
    assert "--network=host" in argv(image=BINDING, network="host")
    with pytest.raises(TerminalError, match="accept-bind-to-port=true"):
        argv(network="host")


CAPABILITIES = "com.amazonaws.sagemaker.capabilities."


@cases(
    "is_multi_model, is_one_of_several, required",
    case("of many models", True, False, f"{CAPABILITIES}multi-models=true"),
    case("beside others", False, True, f"{CAPABILITIES}accept-bind-to-port=true"),
    case("of many models beside others", True, True,
        f"{CAPABILITIES}accept-bind-to-port=true,{CAPABILITIES}" "multi-models=true"),
)  # fmt: skip
def test_images_without_a_label_that_the_model_needs_are_refused_as_on_aws(
    is_multi_model: bool, is_one_of_several: bool, required: str
) -> None:
    needed: dict[str, Any] = {
        "is_multi_model": is_multi_model,
        "is_one_of_several": is_one_of_several,
    }
    with pytest.raises(TerminalError) as refusal:
        argv(**needed)
    assert str(refusal.value).startswith(
        f"Your Ecr Image {ORDER.image} does not contain required {required} Docker label(s). "
    )
    labels = dict(it.split("=") for it in required.split(","))
    assert argv(image=ImageFacts(id="sha256:abc", labels=labels), **needed)


def test_variables_are_in_a_file_and_not_for_every_user_to_read() -> None:
    given = argv()
    assert f"--env-file={FOLDER}/container.env" in given
    assert "--env=A=1" not in given
    assert "--env=B" in given, "a file cannot hold it, and others read a command line"
    assert not any("x\ny" in argument for argument in given)
    assert inherited_variables({"A": "1", "B": "x\ny"}) == {"B": "x\ny"}
    assert environment_file({"A": "1", "B": "x\ny", "C": "# =", "D": ""}) == "A=1\nC=# =\nD=\n"
    assert f"--env=HOSTELRY_COPY_FOLDER={FOLDER}" in given


@pytest.mark.parametrize("path", ["/a,b", '/a"b', "/a\nb"])
def test_a_folder_that_cannot_be_named_to_the_engine_is_refused(path: str) -> None:
    with pytest.raises(TerminalError, match="move the home folder"):
        argv(model_folder=Path(path))


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "mine:1",
        "team/mine:1.0-rc_1",
        "localhost/mine",
        "localhost:5000/a/b-c/d__e:x",
        "123456789012.dkr.ecr.us-west-2.amazonaws.com/mine:latest",
        "a@sha256:" + "0" * 64,
        "r.example:443/a:t@sha256:" + "f" * 64,
    ],
)
def test_names_of_images_are_taken(image: str) -> None:
    check_reference(image)


@cases(
    "image",
    case("nothing", ""),
    case("an option", "--privileged"),
    case("a short option", "-v=/:/host"),
    case("a folder, to Podman", "dir:/etc"),
    case("a file, to Podman", "docker-archive:/tmp/x.tar"),
    case("a transport", "docker://a"),
    case("a path", "../../etc"),
    case("a file", "/etc/passwd"),
    case("two words", "a b"),
    case("a line break", "a\n--privileged"),
    case("two tags", "a:1:2"),
    case("half a digest", "a@sha256:12"),
)
def test_whatever_is_no_name_of_an_image_is_refused(image: str) -> None:
    with pytest.raises(TerminalError, match="is not the name of a container image"):
        check_reference(image)


def test_names_of_containers_are_stable_and_apart() -> None:
    assert container_name(FOLDER) == container_name(Path(str(FOLDER)))
    other = Path("/home/you/instances/i-1/copies/c-1")
    assert container_name(FOLDER) != container_name(other), "two homes on one engine"
    assert len(container_name(FOLDER.parent / ("x" * 128))) < 80


STATE = ContainerState(running=False, pid=None, exit_code=0, out_of_memory=False, error="")


@cases(
    "state, limit, kills, words",
    case("an exit code", {"exit_code": 3}, None, 0, "exited with code 3"),
    case("a signal", {"exit_code": 139}, None, 0, "ended by signal 11"),
    case(
        "its memory, as the engine saw",
        {"exit_code": 137, "out_of_memory": True},
        64 * MIB,
        0,
        "memory: it needed more than its limit of 64 MB (MaxMemoryRequiredInMb",
    ),
    case("its memory, as the kernel counted", {"exit_code": 137}, 64 * MIB, 1, "64 MB"),
    case("somebody's KILL", {"exit_code": 137}, 64 * MIB, 0, "signal 9"),
    case("an end beside another's", {"exit_code": 1}, 64 * MIB, 1, "code 1"),
    case("the machine's memory", {"exit_code": 137}, None, 1, "this machine ran out of it"),
    case("an error", {"error": "no such device"}, None, 0, "no such device"),
)
def test_ends_in_words(state: dict[str, object], limit: int | None, kills: int, words: str) -> None:
    ended = replace(STATE, **state)
    assert words in describe_container_exit(ended, limit, kills)


def test_an_engines_answers_are_read() -> None:
    image = [{"Id": "abc", "Config": {"Labels": {"k": "v"}}}]
    assert parse_images(json.dumps(image).encode()) == ImageFacts(id="abc", labels={"k": "v"})
    bare = [{"Id": "abc", "Config": {"Labels": None}}]
    assert parse_images(json.dumps(bare).encode()).labels == {}
    running = [{"State": {"Running": True, "Pid": 7, "ExitCode": 0, "OOMKilled": False}}]
    assert parse_state(json.dumps(running).encode()).pid == 7
    ended = [{"State": {"Running": False, "Pid": 0, "ExitCode": 137, "OOMKilled": True}}]
    state = parse_state(json.dumps(ended).encode())
    assert (state.running, state.pid, state.exit_code) == (False, None, 137)
    assert state.out_of_memory


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ('exec: "serve": executable file not found in $PATH', True),
        ("no command or entrypoint provided", True),
        ("rlimit type 6: operation not permitted", False),
    ],
)
def test_a_start_that_failed_names_what_the_image_lacks(words: str, hint: bool) -> None:
    text = describe_failed_run("mine:1", words)
    assert '"mine:1"' in text
    assert words in text
    assert ("ENTRYPOINT" in text) == hint


def test_the_last_words_are_one_line_of_bounded_length() -> None:
    assert last_lines(b"a\n\n b \nc\n") == "a b c"
    assert last_lines(b"") == "it printed nothing"
    assert len(last_lines(b"x" * 10_000)) == 600
    assert last_lines(b"\xff") == "�"

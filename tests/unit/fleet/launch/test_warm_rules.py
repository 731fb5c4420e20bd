from tests.cases import case, cases

from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.launch.warm_messages import extract_arguments
from hostelry.fleet.launch.warm_rules import (
    MARKER_ROOM,
    WARM_MODULES,
    build_parent_environment,
    find_cold_cause,
    parse_framework,
)
from hostelry.fleet.rules.images import FRAMEWORK_COMMAND, LMI_COMMAND, TGI_COMMAND, VLLM_COMMAND
from hostelry.fleet.rules.limits import thread_variables

OPERATOR = {"PATH": "/bin", "HF_HOME": "/cache", "HF_TOKEN": "secret", "OMP_NUM_THREADS": "8"}
PARENT = build_parent_environment(OPERATOR)
COPY = {
    **OPERATOR,
    "PYTHONUNBUFFERED": "1",
    **thread_variables(3),
    "CUDA_VISIBLE_DEVICES": "1",
    MARKER_VARIABLE: "/i/copies/c-1",
}


def test_the_interpreter_of_all_copies_holds_no_secret_and_computes_on_one_thread() -> None:
    assert "secret" not in PARENT.values()
    assert PARENT["OMP_NUM_THREADS"] == "1"
    assert len(PARENT[MARKER_VARIABLE]) == MARKER_ROOM


@cases(
    "changes, named",
    case("threads, devices and tokens are read late", {}, None),
    case("the server's options", {"OPTION_MODEL_ID": "m", "SERVING_X": "1"}, None),
    case("arguments of vLLM", {"SM_VLLM_MODEL": "m"}, None),
    case("the container contract", {"HF_MODEL_ID": "m", "SAGEMAKER_X": "1"}, None),
    case("what its options say already", {"PYTHONSAFEPATH": "1"}, None),
    case("what Python reads first", {"PYTHONHASHSEED": "1"}, "PYTHONHASHSEED"),
    case("what a library reads", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
    case("another value than the operator's", {"HF_HOME": "/other"}, "HF_HOME"),
    case("whatever nobody knows", {"B": "", "A": "1"}, "A, B"),
    case("a path without room", {MARKER_VARIABLE: "/" * MARKER_ROOM}, "4096 bytes"),
)
def test_a_variable_that_imports_may_read_makes_the_start_cold(
    changes: dict[str, str], named: str | None
) -> None:
    cause = find_cold_cause(PARENT, {**COPY, **changes})
    assert (cause is None) == (named is None)
    assert named is None or named in str(cause)


def test_a_variable_that_the_copy_lacks_counts_too() -> None:
    copy = {name: value for name, value in COPY.items() if name != "HF_HOME"}
    assert "HF_HOME" in str(find_cold_cause(PARENT, copy))


def test_the_built_in_server_is_warm_and_an_operators_is_not() -> None:
    assert WARM_MODULES[LMI_COMMAND]
    assert ("python3", "/srv/lengths.py") not in WARM_MODULES


def test_every_kind_of_llm_image_is_forked_from_one_interpreter_with_its_own_flags() -> None:
    assert WARM_MODULES[VLLM_COMMAND] == WARM_MODULES[TGI_COMMAND] == WARM_MODULES[LMI_COMMAND]
    flags = [extract_arguments(it) for it in (LMI_COMMAND, VLLM_COMMAND, TGI_COMMAND, ("a", "b"))]
    assert flags == [(), ("--vllm",), ("--tgi",), ()]


SKLEARN = ("--framework", "sklearn", "--runtime", "sklearn-1.2")


@cases(
    "argv, expected",
    case("its own", (*FRAMEWORK_COMMAND, *SKLEARN), ("sklearn", "sklearn-1.2")),
    case("an operator's command", ("python", *SKLEARN), None),
    case("the LLM server", LMI_COMMAND, None),
    case("other arguments", (*FRAMEWORK_COMMAND, *SKLEARN, "--host", "::"), None),
)
def test_the_runtime_of_a_framework_model_server_is_known(
    argv: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    assert parse_framework(argv) == expected

import pytest
from tests.cases import case, cases

from hostelry.containers import variables
from hostelry.containers.predictive import config
from hostelry.fleet.rules.given_variables import (
    BUILT_IN,
    BUILT_IN_NAMES,
    STEERING,
    find_left_out,
    given_variables,
)
from hostelry.fleet.rules.images import framework_rule

# What runs code, is asked before the operator's setting, or leads out: of any family.
WICKED = (
    "BASH_ENV", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "GLIBC_TUNABLES", "HOME", "HOSTALIASES",
    "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOCPATH", "PATH", "PYTHONBREAKPOINT",
    "PYTHONHOME", "PYTHONINSPECT", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONWARNINGS", "GUNICORN_CMD_ARGS", "JAVA_TOOL_OPTIONS",
    "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "OPENSSL_CONF", "OPENSSL_MODULES", "SSL_CERT_FILE",
    "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CC", "CXX", "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_PLUGINS", "HF_ENDPOINT", "HF_HOME",
    "HF_HUB_CACHE", "HF_TOKEN_PATH", "HF_INFERENCE_ENDPOINT", "HUGGINGFACE_CO_STAGING",
    "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY",
    "NO_PROXY", "https_proxy", "http_proxy", "all_proxy", "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "SAGEMAKER_BIND_HOST", "SAGEMAKER_BIND_TO_PORT",
    "HOSTELRY_MODEL_DIR", "HOSTELRY_COPY_FOLDER", "HOSTELRY_ARTIFACT_X", "TMPDIR", "A B", "A=B", "",
)  # fmt: skip


@pytest.mark.parametrize("name", WICKED)
@pytest.mark.parametrize("passed", [BUILT_IN_NAMES, None], ids=["built-in", "operator's"])
def test_what_steers_a_program_is_left_out(name: str, passed: tuple[str, ...] | None) -> None:
    assert given_variables({name: "/evil"}, passed, 4) == {}
    assert find_left_out({name: "/evil"}, passed) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "OPTION_MODEL_ID",
        "OPTION_ENABLE_LORA",
        "SERVING_JOB_QUEUE_SIZE",
        "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB",
        "SAGEMAKER_PROGRAM",
        "HF_MODEL_ID",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HUB_OFFLINE",
        "SM_NUM_GPUS",
        "SM_VLLM_MAX_MODEL_LEN",
        "TS_DEFAULT_WORKERS_PER_MODEL",
        "MMS_JOB_QUEUE_SIZE",
        "TENSOR_PARALLEL_DEGREE",
        "MAX_BATCH_SIZE",
        "DRILL_ANSWER",
        "AWS_ACCESS_KEY_ID",
    ],
)
def test_settings_of_model_servers_reach_the_built_in_ones(name: str) -> None:
    assert given_variables({name: "1"}, BUILT_IN_NAMES, 4) == {name: "1"}


@cases(
    "passed, names",
    case("no built-in server", BUILT_IN_NAMES, []),
    case("an operator's command", None, ["MY_SETTING"]),
    case("its rule's names", ("MY_*", "HTTPS_PROXY"), ["HTTPS_PROXY", "MY_SETTING"]),
    case("a rule that names none", (), []),
)
def test_an_unknown_name_reaches(passed: tuple[str, ...] | None, names: list[str]) -> None:
    environment = {"MY_SETTING": "1", "HTTPS_PROXY": "p", "HOSTELRY_X": "1", "LD_PRELOAD": "x"}
    assert sorted(given_variables(environment, passed, 4)) == names


@pytest.mark.parametrize(
    ("value", "threads"),
    [
        ("1", "1"),
        ("4", "4"),
        ("99999999", "4"),
        ("0", None),
        ("-1", None),
        ("2,1", None),
        ("\u0663", None),
        ("9" * 5000, None),
        ("", None),
    ],
)
def test_threads_are_a_number_of_the_machines_cpus(value: str, threads: str | None) -> None:
    given = given_variables({"OMP_NUM_THREADS": value}, BUILT_IN_NAMES, 4)
    assert given.get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_value_that_no_program_can_be_given_is_left_out(value: str) -> None:
    assert find_left_out({"OPTION_X": value}, BUILT_IN_NAMES) == ("OPTION_X",)


@pytest.mark.parametrize("table", [BUILT_IN, STEERING])
def test_each_name_is_there_once_with_its_reason(table: dict[tuple[str, ...], str]) -> None:
    names = [name for family in table for name in family]
    assert len(names) == len(set(names))
    assert all(table.values())


@pytest.mark.parametrize(
    "name",
    [
        *(config.WORKERS, config.TIMEOUT, config.TIMEOUT_SECONDS, variables.MAX_PAYLOAD),
        *(config.BATCH_SIZE, config.BATCH_DELAY, config.QUEUE_SIZE),
    ],
)
def test_settings_of_framework_models_reach_their_server(name: str) -> None:
    rule = framework_rule("sagemaker-scikit-learn:1.2-1-cpu-py3")
    assert rule is not None
    assert given_variables({name: "1"}, rule.environment, 4) == {name: "1"}

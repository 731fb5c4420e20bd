import shlex
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.environment import (
    HINT,
    client_variables,
    no_proxy,
    shell_lines,
    without_users_aws,
)
from hostelry.cli.program.proxy import FrontAddresses
from hostelry.cli.program.run import (
    BUNDLES,
    exec_environment,
    sagemaker_configuration,
    trusted_certificates,
)
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.https_option import system_certificates

KEYS = Credentials(
    account_id="111122223333",
    region="eu-west-1",
    access_key_id="AKIA",
    secret_access_key="it's $(secret)",
    internal_key="internal",
    openai_api_key="sk-1",
)
CONFIG = UpConfig(control_port=1)
HOME = Home(Path("/h"))


def test_variables() -> None:
    assert client_variables(CONFIG, KEYS) == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:8787",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:8788",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "it's $(secret)",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_REGION": "eu-west-1",
        "OPENAI_BASE_URL": "http://127.0.0.1:8787/v1",
        "OPENAI_API_KEY": "sk-1",
    }


@cases(
    "host, s3_endpoint, gateway, s3",
    case(
        "every address is reached on loopback",
        "0.0.0.0",
        None,
        "http://127.0.0.1:8787",
        "http://127.0.0.1:8788",
    ),
    case("IPv6 is put in brackets", "::1", None, "http://[::1]:8787", "http://[::1]:8788"),
    case(
        "another S3 is named as it was given",
        "127.0.0.1",
        "https://nas",
        "http://127.0.0.1:8787",
        "https://nas",
    ),
)
def test_addresses(host: str, s3_endpoint: str | None, gateway: str, s3: str) -> None:
    config = UpConfig(control_port=1, host=host, s3_endpoint=s3_endpoint)
    variables = client_variables(config, KEYS)
    assert (variables["AWS_ENDPOINT_URL"], variables["AWS_ENDPOINT_URL_S3"]) == (gateway, s3)


@cases(
    "shell, line",
    case("sh", "sh", "export K='it'\"'\"'s $(x)'"),
    case("zsh as sh", "zsh", "export K='it'\"'\"'s $(x)'"),
    case("fish", "fish", "set -gx K 'it\\'s $(x)';"),
    case("powershell", "powershell", "$Env:K = 'it''s $(x)'"),
)
def test_shell_lines_quote_what_a_shell_would_read(shell: str, line: str) -> None:
    assert shell_lines(shell, {"K": "it's $(x)"}) == [line]


def test_sh_lines_read_back_whatever_a_value_holds() -> None:
    for value in ("", "a b", "$HOME", "`id`", "'", '"', "\\", "line\nbreak"):
        (line,) = shell_lines("sh", {"K": value})
        assert shlex.split(line) == ["export", f"K={value}"]


def test_another_shell_is_refused_by_name() -> None:
    with pytest.raises(TerminalError, match="--shell tcsh: expected sh"):
        shell_lines("tcsh", {})


def test_users_settings_that_would_win_are_left_out() -> None:
    users = {
        "AWS_PROFILE": "p",
        "AWS_SESSION_TOKEN": "t",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": "http://elsewhere",
        "AWS_MAX_ATTEMPTS": "9",
        "HF_TOKEN": "h",
    }
    assert without_users_aws(users) == {"AWS_MAX_ATTEMPTS": "9", "HF_TOKEN": "h"}


@cases(
    "environment, expected",
    case("no proxy settings", {}, "127.0.0.1,localhost,10.0.0.7"),
    case("added once", {"NO_PROXY": "corp,localhost"}, "corp,localhost,127.0.0.1,10.0.0.7"),
    case("lower case", {"no_proxy": "corp"}, "corp,127.0.0.1,localhost,10.0.0.7"),
)
def test_no_proxy(environment: dict[str, str], expected: str) -> None:
    assert no_proxy(environment, "10.0.0.7") == expected


def test_exec_sets_everything_and_keeps_the_rest() -> None:
    front = FrontAddresses(
        proxy_url="http://p:1",
        trusted=Path("/t"),
        gateway_url="http://g:1",
        store_url="http://s:1",
        trusted_by_java=Path("/j"),
    )
    users = {
        "JAVA_TOOL_OPTIONS": "-Xmx1g",
        "PYTHONPATH": "/own",
        "LANG": "C",
        "https_proxy": "http://corp",
        "NO_PROXY": "a,.amazonaws.com",
    }
    made = exec_environment(users, HOME, CONFIG, KEYS, front)
    assert made["PYTHONPATH"] == "/own"
    assert made["HTTPS_PROXY"] == made["https_proxy"] == "http://p:1"
    assert made["NO_PROXY"] == "a,127.0.0.1,localhost"
    assert (made["AWS_ENDPOINT_URL"], made["AWS_ENDPOINT_URL_S3"]) == ("http://g:1", "http://s:1")
    assert {made[name] for name in BUNDLES} == {"/t"}
    assert made["JAVA_TOOL_OPTIONS"] == (
        "-Xmx1g -Djavax.net.ssl.trustStore=/j -Djavax.net.ssl.trustStorePassword=changeit"
    )
    assert made["LANG"] == "C"
    assert made["HOSTELRY_HOME"] == "/h"
    assert made["AWS_EC2_METADATA_DISABLED"] == "true"
    for name in (
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE",
    ):
        assert made[name].startswith("/h/client/")


def test_a_program_trusts_the_machine_the_platform_and_what_its_user_does(tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(b"own\n\n")
    given = {"REQUESTS_CA_BUNDLE": str(own), "SSL_CERT_FILE": str(own), "CURL_CA_BUNDLE": "/none"}
    machine = system_certificates()
    assert trusted_certificates(given, b"platform\n") == machine + b"platform\n" + b"own\n"
    assert trusted_certificates({}, machine) == machine


def test_the_sdks_bucket_is_named_as_on_aws() -> None:
    assert "DefaultS3Bucket: sagemaker-eu-west-1-111122223333" in sagemaker_configuration(KEYS)


def test_the_hint_is_a_comment_of_every_shell() -> None:
    assert HINT.startswith("# ")
    assert "\n" not in HINT
    assert "hostelry exec" in HINT

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.platform import CLI, Platform
from tests.integration.virtual_environments import virtual_environment

pytestmark = pytest.mark.integration

PROGRAMS = Path(__file__).parent / "sdk_programs"
# Settings of an AWS user, and settings that would lead a program elsewhere.
USERS_AWS = {
    "AWS_PROFILE": "no-such-profile",
    "AWS_SESSION_TOKEN": "of-another-session",
    "AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:1",
    "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    "AWS_USE_FIPS_ENDPOINT": "true",
    "AWS_CONFIG_FILE": "/no/such/file",
    "http_proxy": "http://127.0.0.1:1",
    "https_proxy": "http://127.0.0.1:1",
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("exec") / "home") as running:
        yield running


def python(platform: Platform, program: str, **environment: str) -> str:
    return platform.exec([sys.executable, "-c", program], environment).stdout


HOSTS = (
    "https://sts.us-east-1.amazonaws.com",
    "https://sts.amazonaws.com",
    "https://sts.cn-north-1.amazonaws.com.cn",
)


@cases(
    "prefix",
    case("as it is", []),
    case("with a PYTHONPATH of its own", ["env", "PYTHONPATH=/elsewhere"]),
    case("in a subprocess", ["sh", "-c", '"$@"; exit $?', "sh"]),
)
def test_clients_of_aws_hosts_are_answered_here(platform: Platform, prefix: list[str]) -> None:
    program = (
        f"import boto3\nfor host in {HOSTS!r}:\n    sts = boto3.client('sts', endpoint_url=host)\n"
        "    print(sts.meta.endpoint_url, sts.get_caller_identity()['Account'])"
    )
    done = platform.exec([*prefix, sys.executable, "-I", "-c", program], USERS_AWS)
    assert done.stdout.splitlines() == [f"{it} {platform.credentials.account_id}" for it in HOSTS]
    assert done.stderr == ""


def test_a_call_to_an_aws_host_that_is_not_served_is_reported_by_name(platform: Platform) -> None:
    program = (
        "import boto3, botocore\n"
        "client = boto3.client('lambda', endpoint_url='https://lambda.us-east-1.amazonaws.com')\n"
        "try:\n    client.list_functions()\n"
        "except botocore.exceptions.ClientError as error:\n    print(error)"
    )
    done = platform.exec([sys.executable, "-c", program])
    assert "does not serve lambda" in done.stdout
    assert done.stderr.startswith("hostelry: lambda.us-east-1.amazonaws.com lambda:")
    assert "nothing was sent to AWS" in done.stderr


def test_the_report_lists_each_call_and_its_result(platform: Platform, tmp_path: Path) -> None:
    program = (
        "import boto3\n"
        "s3 = boto3.client('s3')\n"
        "s3.create_bucket(Bucket='reported')\n"
        "s3.put_object(Bucket='reported', Key='a/\u00e4 b+c', Body=b'x' * 3_000_000)\n"
        "body = s3.get_object(Bucket='reported', Key='a/\u00e4 b+c')['Body'].read()\n"
        "assert len(body) == 3_000_000\n"
        "sm = boto3.client('sagemaker')\n"
        "for _ in range(3): sm.list_endpoints()\n"
        "for call in (sm.list_training_jobs, lambda: sm.describe_endpoint(EndpointName='no')):\n"
        "    try:\n        call()\n"
        "    except sm.exceptions.ClientError: pass\n"
        "boto3.client('cloudwatch').list_metrics()\n"
        "raise SystemExit(3)"
    )
    path = tmp_path / "report.json"
    command = [
        *CLI,
        "exec",
        "--home",
        str(platform.home.root),
        "--report",
        "--report-file",
        str(path),
    ]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", program],
        env=platform.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    found = {
        (row["service"], row["operation"]): (row["result"], row["count"])
        for row in json.loads(path.read_text())["calls"]
    }
    assert found == {
        ("s3", "CreateBucket"): ("ok", 1),
        ("s3", "PutObject"): ("ok", 1),
        ("s3", "GetObject"): ("ok", 1),
        ("sagemaker", "ListEndpoints"): ("ok", 3),
        ("sagemaker", "ListTrainingJobs"): ("not served", 1),
        ("sagemaker", "DescribeEndpoint"): ("error", 1),
        ("cloudwatch", "ListMetrics"): ("ok", 1),
    }
    assert "1 of 9 AWS calls need what this hostelry does not serve" in done.stderr


def test_another_explicit_endpoint_is_left_alone(platform: Platform) -> None:
    program = "import boto3; print(boto3.client('s3', endpoint_url='http://h:1').meta.endpoint_url)"
    assert python(platform, program).strip() == "http://h:1"


def test_a_users_own_aws_settings_do_not_interfere(platform: Platform) -> None:
    program = (
        "import boto3; print(boto3.client('sts').get_caller_identity()['Account'],"
        " boto3.client('sagemaker').list_endpoints()['Endpoints'],"
        " len(boto3.client('s3').list_buckets()))"
    )
    output = python(platform, program, **USERS_AWS)
    assert output.startswith(f"{platform.credentials.account_id} []")


def test_exit_code_output_and_input_pass_through(platform: Platform) -> None:
    done = platform.exec(["sh", "-c", "echo out; echo err >&2; exit 7"], code=7)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert platform.exec(["sh", "-c", "kill -TERM $$"], code=-signal.SIGTERM)


def test_a_signal_reaches_the_program(platform: Platform) -> None:
    program = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [*CLI, "exec", "--home", str(platform.home.root), "--", "sh", "-c", program],
        env=platform.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        with process.stdout as printed:
            assert printed.readline() == "ready\n"
            process.terminate()
            assert process.wait(timeout=30) == 9
    finally:
        process.kill()
        process.wait()


def test_a_program_that_is_not_there(platform: Platform, tmp_path: Path) -> None:
    done = platform.exec(["no-such-program"], code=127)
    assert done.stderr == "hostelry: no-such-program: command not found\n"
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    assert "Permission denied" in platform.exec([str(plain)], code=126).stderr


def test_without_a_running_hostelry_nothing_is_run(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "home")
    refused = platform.exec(["touch", str(tmp_path / "ran")], code=1)
    assert "hostelry up" in refused.stderr
    assert not (tmp_path / "ran").exists()


def test_nothing_is_written_outside_the_hostelrys_home(platform: Platform, tmp_path: Path) -> None:
    program = "import boto3; boto3.client('sts').get_caller_identity()"
    python(platform, program, HOME=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_jumpstart_catalogue_lists_no_model_that_can_be_used(platform: Platform) -> None:
    """In the manner of AWS's notebooks, which list JumpStart's models by it."""
    program = (
        "import boto3, json; s3 = boto3.client('s3');"
        " read = s3.get_object("
        "Bucket='jumpstart-cache-prod-us-east-1', Key='models_manifest.json');"
        " print([it['model_id'] for it in json.loads(read['Body'].read())])"
    )
    assert python(platform, program).strip() == "['hostelry-has-no-jumpstart-models']"


@pytest.mark.timeout(600)  # the first one installs the SDK
@pytest.mark.thorough
def test_sagemaker_sdk_2(platform: Platform, tmp_path: Path) -> None:
    bin_folder = virtual_environment("sdk2", "sagemaker<3", "awscli")
    output = sdk_program(platform, bin_folder, "sdk2.py", tmp_path)
    account, region = platform.credentials.account_id, platform.credentials.region
    assert output == {
        "role": platform.credentials.role_arn,
        "bucket": f"sagemaker-{region}-{account}",
        "uploaded": f"s3://sagemaker-{region}-{account}/from-sdk2/weights.txt",
        "content": "weights",
        "image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/"
        "djl-inference:0.23.0-deepspeed0.9.5-cu118",
        "model": f"arn:aws:sagemaker:{region}:{account}:model/model-from-sdk2",
    }


@pytest.mark.timeout(600)  # the first one installs the SDK
@pytest.mark.thorough
def test_sagemaker_sdk_3_resource_classes(platform: Platform, tmp_path: Path) -> None:
    bin_folder = virtual_environment("sdk3", "sagemaker-core>=2")
    output = sdk_program(platform, bin_folder, "sdk3.py", tmp_path)
    assert output == {
        "role": platform.credentials.role_arn,
        "model": "model-from-sdk3",
        "listed": ["model-from-sdk3"],
        "variant": "AllTraffic",
        "gone": True,
    }


@pytest.mark.timeout(600)  # the first one installs the SDK
def test_the_aws_command_line(platform: Platform, tmp_path: Path) -> None:
    aws = str(virtual_environment("sdk2", "sagemaker<3", "awscli") / "aws")
    users = {**USERS_AWS, "HOME": str(tmp_path)}
    listed = platform.exec([aws, "sagemaker", "list-endpoints"], users).stdout
    assert json.loads(listed) == {"Endpoints": []}
    platform.exec([aws, "s3", "mb", "s3://from-the-command-line"], users)
    (tmp_path / "file").write_text("content")
    copied = ["s3", "cp", str(tmp_path / "file"), "s3://from-the-command-line/a/b"]
    platform.exec([aws, *copied], users)
    assert "from-the-command-line" in platform.exec([aws, "s3", "ls"], users).stdout


def sdk_program(platform: Platform, bin_folder: Path, name: str, home: Path) -> dict[str, object]:
    """The last line of a program as JSON. It runs in a separate user's home."""
    users = {**USERS_AWS, "HOME": str(home), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    done = platform.exec([str(bin_folder / "python"), str(PROGRAMS / name)], users)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found

"""A platform on PostgreSQL: control is killed, the server restarts, no password is shown."""

import contextlib
import json
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from botocore.exceptions import ClientError
from tests.integration.drill import ENDPOINT, ROLE, create_endpoint, write_image_rule
from tests.integration.platform import CLI, Platform, clean_environment, until
from tests.postgres_rig import QUOTED_PASSWORD, postgres_database, postgres_server

from hostelry.base.proc import PROC

pytestmark = pytest.mark.integration
MODEL = {"PrimaryContainer": {"Image": "drill"}, "ExecutionRoleArn": ROLE}


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as found:
        yield found


def test_a_platform_on_postgresql_survives_its_control_and_its_server(
    tmp_path: Path, url: str
) -> None:
    write_image_rule(tmp_path / "home")
    with Platform(tmp_path / "home", "--store", url) as platform:
        create_endpoint(platform)
        status = platform.cli("status", "--json").stdout
        assert not shows_secret(platform, status)
        assert_other_home_is_refused(tmp_path / "other", url)
        assert "a platform runs on the store" in refused("store", "release", "--store", url)

        control = platform.kill("control")
        platform.back("control", control)
        until(lambda: is_described(platform), "the endpoint is described again")
        assert not platform.home.state.exists()

        with steady_describes(platform) as failures:
            postgres_server().restart()
            until(lambda: put_model(platform, "after-restart"), "a model is created again")
        assert set(failures) <= {"ServiceUnavailable"}
        made = json.loads(platform.audit("list", "--json", "--by", "EventName=CreateModel"))
        assert "errorCode" not in made[0], "the newest call made the model"
        assert "No record was changed or removed" in platform.audit("verify")
        platform.down()
        platform.flags = ()  # the home keeps its choice
        platform.start()
        assert is_described(platform)


def put_model(platform: Platform, name: str) -> bool:
    """Try to create the model. True if it exists."""
    try:
        platform.looker().create_model(ModelName=name, **MODEL)
    except ClientError as error:
        if "already existing" in str(error):
            return True
        if error.response["Error"]["Code"] != "ServiceUnavailable":
            raise
        return False
    return True


def is_described(platform: Platform) -> bool:
    with contextlib.suppress(ClientError):
        return bool(platform.looker().describe_endpoint(EndpointName=ENDPOINT))
    return False


@contextlib.contextmanager
def steady_describes(platform: Platform) -> Iterator[list[str]]:
    """Describe the endpoint all the time, and collect the codes of failures."""
    failures: list[str] = []
    done = threading.Event()
    client = platform.looker()

    def describe() -> None:
        while not done.wait(0.02):
            try:
                client.describe_endpoint(EndpointName=ENDPOINT)
            except ClientError as error:
                failures.append(error.response["Error"]["Code"])

    thread = threading.Thread(target=describe)
    thread.start()
    try:
        yield failures
    finally:
        done.set()
        thread.join(60.0)


def shows_secret(platform: Platform, status: str) -> list[str]:
    """Each place where another user, or a client, could read the password."""
    texts = {"status": status}
    texts |= {str(it): it.read_text(errors="replace") for it in platform.home.logs.glob("*.log")}
    for pid in platform.processes():
        with contextlib.suppress(OSError):
            texts[f"ps of {pid}"] = (PROC / str(pid) / "cmdline").read_text(errors="replace")
    assert stat.S_IMODE(platform.home.config.stat().st_mode) == 0o600
    secrets = (QUOTED_PASSWORD, unquote(QUOTED_PASSWORD))
    return [place for place, text in texts.items() if any(it in text for it in secrets)]


def assert_other_home_is_refused(root: Path, url: str) -> None:
    other = Platform(root, "--store", url)
    done = other.cli("up", "--detach", *other.port_flags(), "--store", url, code=1)
    assert "is that of the home " in done.stderr
    assert str(root) in done.stderr
    assert QUOTED_PASSWORD not in done.stderr + done.stdout
    assert not other.processes()


def refused(*words: str) -> str:
    """Standard error of a command that fails as expected."""
    done = subprocess.run(
        [*CLI, *words],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr

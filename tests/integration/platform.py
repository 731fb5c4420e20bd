"""A whole platform for a test: a separate home, free ports, the real command line.

    with Platform(tmp_path / "home") as platform:
        platform.boto3("sagemaker").list_endpoints()
        platform.kill("control")

At its end the context stops everything. It fails the test if a process that names the home is left.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session

from hostelry.base.clock import monotonic_s
from hostelry.base.ports import free_ports
from hostelry.base.proc import PROC, processes
from hostelry.cli.environment import client_variables
from hostelry.home.aws_client import NO_CONFIGURATION
from hostelry.home.home import Credentials, Home, UpConfig, load_config, load_credentials
from hostelry.home.run_file import RunFile, gateway_names, live_run_file

CLI = (sys.executable, "-m", "hostelry.cli.main")
COMMAND_TIMEOUT_S = 240
TRACEBACK = "Traceback (most recent call last)"
# The descriptions of AWS's services are read once. Then a client takes a tenth of its 100 ms.
DESCRIPTIONS = create_loader()


def client_session() -> Session:
    """A session without configuration. Its clients use `DESCRIPTIONS`."""
    session = Session(session_vars=NO_CONFIGURATION)
    session.register_component("data_loader", DESCRIPTIONS)
    return session


def client(service: str, url: str, credentials: Credentials) -> Any:
    """A botocore client of the server at `url`. It tries each call once, for 3 s."""
    return client_session().create_client(
        service,
        region_name=credentials.region,
        endpoint_url=url,
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        config=Config(
            connect_timeout=3.0, read_timeout=3.0, retries={"total_max_attempts": 1}, proxies={}
        ),
    )


def until(check: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    """Wait for a true value of `check`, and return it. In time, fails with a message about `what`.

    The pause between two checks is as long as a check, or a tenth of the wait so far. More frequent
    checks would take CPU time from the awaited event.
    """
    first_at = began = monotonic_s()
    while not (value := check()):
        now = monotonic_s()
        assert now < first_at + within_s, f"{what}: not within {within_s:g} s"
        time.sleep(min(max(0.05, now - began, (now - first_at) / 10), 0.5))
        began = monotonic_s()
    return value


def names(pid: int, text: bytes) -> bool:
    """Whether the process's command line or environment contains `text`. False once it is gone."""
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            if text in (PROC / str(pid) / name).read_bytes():
                return True
    return False


def processes_naming(text: str) -> list[int]:
    """All other live processes with `text` in their command line or environment."""
    others = (it.pid for it in processes() if it.pid != os.getpid())
    return sorted(pid for pid in others if names(pid, text.encode()))


def clean_environment() -> dict[str, str]:
    """This process's environment without variables about AWS or hostelry."""
    prefixes = ("AWS_", "HOSTELRY_", "OPENAI_", "SAGEMAKER_", "PYTHONPATH")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}


class Platform:
    """One platform. `flags` are given to every `up`. `port` and `s3_port` survive restarts."""

    def __init__(
        self,
        root: Path,
        *flags: str,
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.home = Home(root.absolute())
        self._command = (python, *CLI[1:])
        self.port, self.s3_port = free_ports(2)
        self.flags = flags
        self.environment = {**clean_environment(), **(environment or {})}
        self.may_log_tracebacks = False  # True in tests that break the platform's assumptions
        self._clients: list[Any] = []
        self._looker: Any = None

    def __enter__(self) -> "Platform":
        try:
            self.start()
        except BaseException:
            self.clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        left = self.clean_up()
        if error is None:
            assert not left, f"processes of {self.home.root} were left behind: {left}"
            if not self.may_log_tracebacks:
                assert not self.tracebacks(), self.tracebacks()

    def start(self) -> None:
        """Run `hostelry up --detach`. Returns when the platform is ready."""
        self.cli("up", "--detach", *self.port_flags(), *self.flags)

    def port_flags(self) -> list[str]:
        """The flags with this platform's ports."""
        return ["--port", str(self.port), "--s3-port", str(self.s3_port)]

    def down(self, *flags: str) -> str:
        """Run `hostelry down`, and return its output."""
        return self.cli("down", *flags).stdout

    def cli(
        self, command: str, *arguments: str, code: int | None = 0
    ) -> "subprocess.CompletedProcess[str]":
        """Run `hostelry COMMAND --home ...`. Fails the test if its exit code is not `code`.

        None accepts any exit code.
        """
        return self._run([command], arguments, code)

    def _run(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        code: int | None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*self._command, *command, "--home", str(self.home.root), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        ended = f"hostelry {' '.join(command)} ended with {done.returncode}"
        output = f"{ended}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, output
        assert "Traceback" not in done.stderr, output
        return done

    def chaos(
        self,
        name: str,
        *arguments: str,
        code: int | None = 0,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> "subprocess.CompletedProcess[str]":
        """Run `hostelry chaos run NAME` with `cli`."""
        return self._run(["chaos", "run", name], arguments, code, timeout_s)

    def audit(self, command: str, *arguments: str, code: int | None = 0) -> str:
        """The output of `hostelry audit COMMAND`."""
        return self._run(["audit", command], arguments, code).stdout

    def accounts(self, group: str, act: str, *arguments: str) -> Any:
        """The result of `hostelry accounts`, `hostelry users` or `hostelry keys`."""
        return json.loads(self._run([group, act], (*arguments, "--json"), 0).stdout)

    def scaling(self, name: str, *arguments: str) -> str:
        """The output of `hostelry scaling NAME`. Fails the test if the command fails."""
        return self._run(["scaling", name], arguments, 0).stdout

    def quotas(self, name: str, *arguments: str) -> str:
        """Output of `hostelry quotas NAME`."""
        return self._run(["quotas", name], arguments, 0).stdout

    def jobs(self, name: str, *arguments: str) -> str:
        """The output of `hostelry jobs NAME`. Fails the test if the command fails."""
        return self.job_command(name, *arguments).stdout

    def job_command(
        self, name: str, *arguments: str, code: int | None = 0
    ) -> "subprocess.CompletedProcess[str]":
        """Run `hostelry jobs NAME` with `cli`."""
        return self._run(["jobs", name], arguments, code)

    def exec(
        self,
        command: Sequence[str],
        environment: dict[str, str] | None = None,
        code: int = 0,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program under `hostelry exec`. Fails the test if its exit code is not `code`."""
        done = subprocess.run(
            [*self._command, "exec", "--home", str(self.home.root), "--", *command],
            env={**self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    @property
    def config(self) -> UpConfig:
        """The configuration with which the platform was started."""
        return load_config(self.home)

    @property
    def credentials(self) -> Credentials:
        """The platform's keys."""
        return load_credentials(self.home)

    def env(self) -> dict[str, str]:
        """The variables of `hostelry env`, added to this process's cleaned environment."""
        return {**self.environment, **client_variables(self.config, self.credentials)}

    def boto3(self, service: str, **options: Any) -> Any:
        """A client of the platform, closed with it. `options` are passed to botocore's `Config`."""
        variables = client_variables(self.config, self.credentials)
        key = "AWS_ENDPOINT_URL_S3" if service == "s3" else "AWS_ENDPOINT_URL"
        client = client_session().create_client(
            service,
            region_name=self.credentials.region,
            endpoint_url=variables[key],
            aws_access_key_id=self.credentials.access_key_id,
            aws_secret_access_key=self.credentials.secret_access_key,
            verify=variables.get("AWS_CA_BUNDLE"),
            config=Config(**{"proxies": {}, "read_timeout": 60, **options}),
        )
        self._clients.append(client)
        return client

    def looker(self) -> Any:
        """A sagemaker client without retries, for frequent calls."""
        if self._looker is None:
            self._looker = self.boto3("sagemaker", retries={"total_max_attempts": 1})
        return self._looker

    @property
    def gateway_workers(self) -> list[str]:
        """The names of the gateway's workers."""
        return gateway_names(self.config.gateway_workers)

    def running(self, name: str) -> RunFile | None:
        """The platform process `name` (up, gateway-1, control, ...), if it is alive."""
        return live_run_file(self.home, name)

    def pid(self, name: str) -> int:
        """The pid of a platform process. Fails if the process is not alive."""
        record = self.running(name)
        assert record is not None, f"{name} is not running"
        return record.pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to a platform process, and return its pid."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def back(self, name: str, old_pid: int, within_s: float = 60.0) -> int:
        """Wait until `name` runs again under another pid and listens. Returns this pid."""

        def restarted() -> int | None:
            record = self.running(name)
            if record is None or record.pid == old_pid:
                return None
            if name == "control":  # other processes call it as soon as it listens
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", self.config.control_port), 1.0),
                ):
                    return record.pid
                return None
            return record.pid

        return int(until(restarted, f"{name} restarted after pid {old_pid} died", within_s))

    def notified(self, topic_file: str) -> list[str]:
        """The inference id of each notification. A line that a fault cut off is written again."""
        found = []
        for line in (self.home.root / "topics" / topic_file).read_bytes().split(b"\n"):
            with contextlib.suppress(json.JSONDecodeError):
                message = json.loads(json.loads(line)["Message"])
                found += [message["inferenceId"]] if "inferenceId" in message else []
        return found

    def log(self, name: str) -> str:
        """The output of a platform process so far."""
        path = self.home.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tracebacks(self) -> list[str]:
        """The logs of the platform's own processes with a traceback, each from the traceback on."""
        logs = [*self.home.logs.glob("*.log"), *self.home.instances.glob("*/agent.log")]
        texts = {str(path): path.read_text(errors="replace") for path in logs}
        return [
            f"{path}:\n{text[max(0, text.index(TRACEBACK) - 300) :][:3000]}"
            for path, text in texts.items()
            if TRACEBACK in text
        ]

    def processes(self) -> list[int]:
        """Every live process with this home in its command line or environment."""
        return processes_naming(str(self.home.root))

    def clean_up(self) -> list[str]:
        """Stop everything. Returns the processes that were left, which are then killed."""
        self._looker = None
        while self._clients:
            self._clients.pop().close()
        self.cli("down", "--timeout", "20", code=None)
        left = [f"{pid}: {command_line(pid)}" for pid in self.processes()]
        for pid in self.processes():
            kill_if_alive(pid)
        return left


def kill_if_alive(pid: int) -> None:
    """Kill a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def command_line(pid: int) -> str:
    """A process's command line, for messages."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "(gone)"

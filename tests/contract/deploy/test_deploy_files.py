"""Linters of `deploy/`, which are the programs that will read it: `make tools` installs them."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cases import case, cases

from hostelry.cli.main import command_tree
from hostelry.processes.systemd_unit import unit_text

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".deploy-tools" / "bin"
CHART = DEPLOY / "helm" / "hostelry"
CHECKER = Path(__file__).parent / "check_chart.py"
INFO = 1  # severity of Helm's lint
SIZES = ("small", "medium", "large")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MOST_EXPOSED = 3.0  # of systemd-analyze's 10


def asked(*command: str | Path, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Run a linter. Skips the test if this machine does not have it."""
    if shutil.which(command[0]) is None:
        has = "`make tools` installs it" if TOOLS in Path(command[0]).parents else "not on PATH"
        pytest.skip(f"no {Path(command[0]).name}: {has}")
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def accepted(*command: str | Path) -> str:
    """The output of a linter that finds no fault."""
    done = asked(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def chart(size: str | None) -> dict[str, Any]:
    """The chart with the values of one size: `messages`, `documents`, `faults`."""
    values = [] if size is None else [CHART / f"values-{size}.yaml"]
    found: dict[str, Any] = json.loads(accepted(TOOLS / "python", CHECKER, CHART, *values))
    return found


def compose() -> dict[str, Any]:
    """The services by name."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    accepted(TOOLS / "hadolint", DEPLOY / "Dockerfile")


def test_the_compose_file_is_one_by_its_schema_and_by_docker_compose() -> None:
    file = DEPLOY / "compose.yaml"
    accepted(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)
    accepted(TOOLS / "docker-compose", "--file", file, "config", "--quiet")


def test_every_service_of_compose_is_confined_restarted_checked_and_limited() -> None:
    for name, service in compose().items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert {"healthcheck", "stop_grace_period"} & set(service), name
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}, name


def test_secrets_of_compose_are_files_and_never_values() -> None:
    for name, service in compose().items():
        for variable, value in service.get("environment", {}).items():
            is_secret = re.search("PASSWORD|KEY|TOKEN|SECRET", variable)
            assert not is_secret or value.startswith("/run/secrets/"), (name, variable)


def image_command() -> list[str]:
    """Arguments that the image gives to `hostelry` by default."""
    text = (DEPLOY / "Dockerfile").read_text()
    found: list[str] = json.loads(text.rpartition("\nCMD ")[2])
    return found


def unit_command(unit: Path) -> list[str]:
    """The arguments of a unit's program, without arguments from its environment."""
    line = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    assert line is not None
    return [it for it in shlex.split(line[1])[1:] if not it.startswith("$")]


def test_the_process_of_the_image_is_not_root_and_the_builder_stays_behind() -> None:
    stages = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")
    assert re.search(r"^USER 10001:10001$", stages[-1], re.MULTILINE)
    assert "g++" not in stages[-1]
    assert all(stage.startswith("${") for stage in stages[1:]), "each base is an argument"


def containers(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod's spec of a manifest, with each of its containers."""
    groups: list[Any] = [document]
    if document["kind"] == "RayCluster":
        spec = document["spec"]
        groups = [{"spec": it} for it in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    for group in groups:
        pod = group.get("spec", {}).get("template", {}).get("spec")
        for container in (*pod.get("initContainers", ()), *pod["containers"]) if pod else ():
            yield pod, container


@pytest.mark.parametrize("size", [None, *SIZES])
def test_the_chart_is_one_by_helm_and_its_manifests_by_kubernetes_and_kuberay(
    size: str | None,
) -> None:
    found = chart(size)
    assert [it for it in found["messages"] if it["severity"] > INFO] == []
    assert found["faults"] == []
    kinds = {it["kind"] for it in found["documents"]}
    assert kinds >= {"StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "RayCluster"}
    assert "Secret" not in kinds, "secrets are referred to"


@pytest.mark.parametrize("size", SIZES)
def test_no_pod_of_the_chart_is_privileged_unlimited_or_unchecked(size: str) -> None:
    for document in chart(size)["documents"]:
        for pod, container in containers(document):
            name = container["name"]
            assert pod["securityContext"]["runAsNonRoot"], name
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
            assert not any("hostPath" in it for it in pod["volumes"]), name
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"requests", "limits"} == set(container["resources"]), name
            is_first = container in pod.get("initContainers", ())
            assert is_first or "livenessProbe" in container, name


def test_a_ray_pod_offers_instances_of_its_type_and_its_gpus() -> None:
    (cluster,) = (it for it in chart("large")["documents"] if it["kind"] == "RayCluster")
    group = cluster["spec"]["workerGroupSpecs"][1]
    assert json.loads(json.loads(group["rayStartParams"]["resources"])) == {"ml.g5.12xlarge": 1}
    assert group["rayStartParams"]["num-gpus"] == "4"
    (worker,) = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize(
    ("size", "controls"), [(None, 1), ("small", 1), ("medium", 2), ("large", 2)]
)
def test_each_control_of_the_chart_joins_and_is_known_to_gateways(
    size: str | None, controls: int
) -> None:
    documents = {(it["kind"], it["metadata"]["name"]): it for it in chart(size)["documents"]}
    assert (("StatefulSet", "hostelry-standby") in documents) is (controls > 1)
    gateway = documents["StatefulSet", "hostelry-gateway"]["spec"]["template"]["spec"]
    (known,) = gateway["initContainers"][0]["env"]
    assert (
        json.loads(known["value"])
        == [
            "https://control@hostelry-control-0.hostelry-control:7443",
            "https://control@hostelry-standby-0.hostelry-standby:7443",
        ][:controls]
    )
    if controls == 1:
        return
    standby = documents["StatefulSet", "hostelry-standby"]["spec"]
    assert standby["replicas"] == controls - 1
    pod = standby["template"]["spec"]
    assert [it["name"] for it in pod["containers"]] == ["standby", "ray-node"]
    secrets = {it["secret"]["secretName"] for it in pod["volumes"] if "secret" in it}
    assert "hostelry-join-control" in secrets
    mounted = [it for it in gateway["volumes"] if "secret" in it]
    assert "hostelry-join-control" not in str(mounted), "gateways see no token of role control"
    policy = documents["NetworkPolicy", "hostelry-control"]["spec"]["podSelector"]
    assert policy["matchExpressions"][0]["values"] == ["control", "standby"]


@cases(
    "values, fault",
    case("no gateway", {"gateway": {"replicas": 0}}, "replicas"),
    case("no control", {"control": {"replicas": 0}}, "replicas"),
    case("an account of two digits", {"accountId": "12"}, "accountId"),
    case("a secret as a value", {"postgresql": {"password": "x"}}, "password"),
    case("no option", {"control": {"extraArgs": ["rm"]}}, "extraArgs"),
)
def test_the_chart_refuses_values(values: dict[str, Any], fault: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    done = asked(TOOLS / "python", CHECKER, CHART, tmp_path / "values.yaml")
    assert done.returncode == 1
    assert fault in done.stderr, done.stderr


def test_this_version_takes_the_arguments_in_the_chart() -> None:
    found = [
        (container["name"], container["args"])
        for document in chart("large")["documents"]
        for pod, container in containers(document)
        if container["name"] in ("hostelry", "standby", "gateway")
    ]
    assert len(found) == 3
    for name, arguments in found:
        takes(name, arguments)


COMMANDS = {
    "Dockerfile": image_command(),
    "compose.yaml": compose()["hostelry"]["command"],
    **{unit.name: unit_command(unit) for unit in UNITS},
}


@pytest.mark.parametrize("where", COMMANDS)
def test_this_version_takes_the_arguments_in(where: str) -> None:
    takes(where, COMMANDS[where])


def takes(where: str, arguments: list[str]) -> None:
    """Assert that a command of this version has all of these options."""
    name, *rest = arguments
    used = {it.partition("=")[0] for it in rest if it.startswith("-")}
    assert used <= known_options(name), f"{where}: {used - known_options(name)}"


def known_options(name: str) -> set[str]:
    """The options of one command."""
    command = command_tree().commands[name]
    return {option for parameter in command.params for option in parameter.opts}


@cases(
    "given, seen",
    case("a secret is a file", {"PGPASSWORD_FILE": "secret"}, "up x y|s3cret||"),
    case("a secret is a variable", {"PGPASSWORD": "own"}, "up x y|own||"),
    case("a joined home", {"HOSTELRY_JOIN_TOKEN_FILE": "none"}, "up x y|||"),
    case("a home joins", {"HOSTELRY_JOIN_TOKEN_FILE": "secret"}, "up x y||s3cret|"),
)
def test_the_entrypoint_reads_secrets_from_files(
    given: dict[str, str], seen: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    program = tmp_path / "hostelry"
    program.write_text('#!/bin/sh\necho "$*|$PGPASSWORD|$HOSTELRY_JOIN_TOKEN|$PGPASSWORD_FILE"\n')
    program.chmod(0o755)
    command = [str(DEPLOY / "entrypoint"), "up", "x y"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **given}
    shown = subprocess.check_output(command, env=environment, cwd=tmp_path, text=True)
    assert shown.strip() == seen


@pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
def test_systemd_verifies_the_unit_and_finds_it_confined(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text().replace("/opt/hostelry/bin/hostelry", "/bin/true")
    copy = tmp_path / unit.name.replace("@", "@one")
    copy.write_text(text)
    done = asked("systemd-analyze", "verify", "--man=no", copy)
    assert (done.returncode, done.stderr) == (0, "")
    shown = accepted("systemd-analyze", "security", "--offline=true", copy)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", shown)
    assert exposure is not None, shown
    assert float(exposure[1]) <= MOST_EXPOSED, shown


def test_systemd_verifies_the_unit_that_up_prints(tmp_path: Path) -> None:
    home, words = Path('/srv/a 100% "home\'s" $HOME'), ["--port", "1", "it's", "a;b", ";", "\t"]
    printed = tmp_path / "printed.service"
    printed.write_text(unit_text(["/bin/true"], ["up", *words], home))
    done = asked("systemd-analyze", "verify", "--man=no", printed)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_stopped_and_restarted_as_up_prints_it() -> None:
    printed = unit_text(["hostelry"], ["up"], Path("/var/lib/hostelry")).splitlines()
    shipped = (DEPLOY / "systemd" / "hostelry.service").read_text().splitlines()
    own = ("Description=", "ExecStart=", "After=", "WantedBy=", "#", "[")
    assert [it for it in printed if it and not it.startswith(own) and it not in shipped] == []

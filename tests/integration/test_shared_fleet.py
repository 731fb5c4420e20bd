"""Twenty components and many adapters on four declared instances, scaled and explained."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.models import tiny_model
from tests.integration.platform import CLI, Platform
from tests.models import random_adapter

STORY_TIMEOUT_S = 300  # some 40 s where the machine has nothing else to do
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(STORY_TIMEOUT_S + 100),
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NO_PLACE = (
    r"a copy needs 2 accelerators, 16384 MB and 4 CPUs; "
    r"no accelerator is free on any of 4 instances \(ml\.g5\.12xlarge\); "
    r"MaxInstanceCount allows no more instances"
)


@pytest.mark.thorough
def test_the_shared_fleet_example_runs_and_explains_each_placement(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    for number, name in enumerate(("es", "fr", "pirate")):
        random_adapter(tmp_path / "adapters" / name, model, rank=4, seed=number)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    rule = subprocess.run(
        [sys.executable, str(EXAMPLES / "echo_server.py"), "--image-rule"],
        capture_output=True,
        text=True,
        check=True,
    )
    (home / "images.toml").write_text(rule.stdout)
    calls = tmp_path / "calls.json"
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with Platform(home, "--pace", "40", environment=environment) as platform:
        done = subprocess.run(
            [
                *(*CLI, "exec", "--home", str(home), "--report-file", str(calls), "--"),
                *(sys.executable, str(EXAMPLES / "shared_fleet.py")),
                *("--model", str(model), "--adapters", str(tmp_path / "adapters")),
                *("--release-within", "120"),
            ],
            env=platform.environment,
            capture_output=True,
            text=True,
            timeout=STORY_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert json.loads(calls.read_text())["unserved"] == []
        assert platform.boto3("sagemaker").list_endpoints()["Endpoints"] == []
    output = done.stdout
    assert re.search(r"20 components serve after [\d.]+ s on 4 instances", output), output
    assert "26 components answered" in output
    assert '"name": "vision-1"' in output
    created, second, late, fewer = output.split("--- ")[1:]
    assert created.count("BINPACK: ") == 15
    assert created.count("SPREAD: ") == 5
    assert len(re.findall(r"\d of 4 free", created)) == 4
    assert "no place" not in created
    assert "(2 on 2 instances)" in second
    assert re.search(NO_PLACE, late), late
    assert "late-comer: 1 of 1 copy has no place" in late
    assert "what would help: " in late
    assert "one of 4 instances was released" in output
    assert len(re.findall(r"\d of 4 free", fewer)) == 3

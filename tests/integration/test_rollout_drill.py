"""The drill of updates whose processes are killed in each step, on a whole platform."""

import json
from pathlib import Path

import pytest
from tests.integration.platform import Platform

from hostelry_lab.rollout.rollout_ledger import BROKEN, SOCKETS

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.thorough
def test_updates_end_as_they_must_though_processes_are_killed_in_each_step(tmp_path: Path) -> None:
    with Platform(tmp_path / "home", "--gateway-workers", "2") as platform:
        platform.may_log_tracebacks = True
        ran = platform.chaos("rollout", "--json", code=None, timeout_s=300)
        (outcome,) = json.loads(ran.stdout)
        assert (outcome["verdict"], ran.returncode) == ("PASS", 0), outcome["missed"]
        good, broken, rolling = outcome["rollout"]["parts"]
        assert [it["name"] for it in good["steps"]] == ["coming up", "step 1 of 2", "step 2 of 2"]
        batches = ["coming up", "batch 1 of 2", "batch 2 of 2"]
        assert [it["name"] for it in rolling["steps"]] == batches
        for part in (good, rolling):
            assert {it["step"] for it in part["kills"]} == {it["name"] for it in part["steps"]}
            assert part["failures"].keys() <= {SOCKETS}
        for part in (good, broken, rolling):
            assert {it["kind"] for it in part["kills"]} == {"control", "gateway", "agent"}
        assert good["answers"].keys() == {"first", "good"}
        assert broken["failures"].keys() <= {SOCKETS, BROKEN}
        assert broken["failures"][BROKEN] > 0
        assert broken["answers"].keys() == {"good"}
        assert rolling["answers"].keys() == {"good", "later"}
        assert platform.boto3("sagemaker").list_endpoints()["Endpoints"] == []

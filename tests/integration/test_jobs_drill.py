"""The drill of requests and batches on a whole platform, in its short form."""

import json
from pathlib import Path

import pytest
from tests.integration.platform import Platform

from hostelry_lab.fixture import PREFIX
from hostelry_lab.jobs.plan import SHORT

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280)]
SIZES = ("--requests", "400", "--records", "4000", "--kills", "14")


@pytest.mark.thorough
def test_nothing_is_lost_or_doubled_though_every_process_is_killed_twice(tmp_path: Path) -> None:
    with Platform(tmp_path / "home", "--gateway-workers", "2") as platform:
        platform.may_log_tracebacks = True
        ran = platform.chaos("jobs", *SIZES, "--seed", "16", "--json", code=None)
        (outcome,) = json.loads(ran.stdout)
        assert outcome["missed"] == [], ran.stdout
        ledger = outcome["jobs"]
        assert ledger["sizes"] == {
            "num_requests": SHORT.num_requests,
            "num_records": SHORT.num_records,
            "num_kills": SHORT.num_kills,
            "seed": 16,
        }
        assert ledger["requests"]["answered"] + ledger["requests"]["failed_as_due"] == 400
        assert ledger["records"]["answered"] + ledger["records"]["failed_as_due"] == 4000
        assert {it["kind"] for it in ledger["kills"]} == {
            *("gateway", "control", "jobs", "objectstore", "s3door", "agent", "copy")
        }
        assert (outcome["verdict"], ran.returncode) == ("PASS", 0)
        assert platform.boto3("sagemaker").list_endpoints()["Endpoints"] == []
        buckets = [it["Name"] for it in platform.boto3("s3").list_buckets()["Buckets"]]
        assert not [it for it in buckets if it.startswith(PREFIX)]
        assert platform.boto3("sns").list_topics()["Topics"] == []
        assert list((platform.home.root / "topics").iterdir()) == []
        refused = platform.chaos("copy-kill", "--seed", "1", code=2)
        assert "are options of jobs" in refused.stderr

"""Models of a multi-model endpoint on an instance whose disk is really full.

Needs the right to mount a small filesystem. Without it,
`tests/unit/fleet/agent/test_full_disk.py` still simulates these faults.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.multi_model_rig import Models
from tests.integration.platform import Platform
from tests.integration.served_models import IMAGE, sklearn_runtimes

from hostelry.base.runtimes import VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.slow]
MIB = 1024 * 1024
DISK_BYTES = 160 * MIB
MODEL_BYTES = 30 * MIB  # twice that while its archive is unpacked
CODE = """
import os
def model_fn(model_dir):
    return float(open(os.path.join(model_dir, "factor")).read())
def input_fn(body, content_type):
    return float(body)
def predict_fn(data, model):
    return [data * model]
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose instances have a small disk."""
    instances = tmp_path / "home" / "instances"
    instances.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(instances)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield tmp_path / "home"
    subprocess.run(["umount", "--lazy", str(instances)], check=True)


@pytest.mark.thorough
def test_a_full_disk_gives_up_models_and_names_itself_where_that_is_not_enough(home: Path) -> None:
    environment = {VARIABLE: str(sklearn_runtimes()), "HOSTELRY_CUSTOM_CODE": "trusted"}
    with Platform(home, environment=environment) as platform:
        platform.may_log_tracebacks = True  # of writes that the disk refuses
        models = Models(platform, "disk", IMAGE).serving

        def put(name: str, factor: int, num_bytes: int = MODEL_BYTES) -> str:
            files: dict[str, bytes | str] = {
                "factor": str(factor),
                "code/inference.py": CODE,
                "ballast": os.urandom(num_bytes),
            }
            return models.put(f"{name}.tar.gz", files)

        targets = [put(f"m{number}", number) for number in range(1, 7)]
        for number, target in enumerate(targets, start=1):
            assert models.eventually(target, b"2", "text/csv") == [2.0 * number], target
        huge = put("huge", 9, DISK_BYTES)
        with ThreadPoolExecutor(2) as pool:
            refused = pool.submit(models.refusal, huge, b"2", "text/csv")
            assert models.eventually(targets[-1], b"2", "text/csv") == [12.0]
        error = refused.result()
        assert "disk" in error["Message"] or "No space left" in error["Message"], error
        for number, target in enumerate(targets, start=1):
            assert models.eventually(target, b"2", "text/csv") == [2.0 * number], target
        put("huge", 9, MIB)
        assert models.eventually(huge, b"2", "text/csv") == [18.0], "there is room for it now"

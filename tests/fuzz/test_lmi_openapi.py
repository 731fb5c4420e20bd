"""schemathesis against the LLM server's own description of its routes.

Generated requests may get any answer in the description, but must not cause an unexpected error.
"""

import os
import subprocess
from pathlib import Path

import pytest
from tests.integration.lmi_rig import byte_model, is_idle, serving
from tests.integration.virtual_environments import virtual_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # the first run installs it

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)
EXAMPLES = os.environ.get("HOSTELRY_OPENAPI_EXAMPLES", "2")


def test_no_answer_is_a_defect_or_outside_the_description(tmp_path: Path) -> None:
    program = virtual_environment("schemathesis", "schemathesis==4.32.5") / "schemathesis"
    options = {"OPTION_ENABLE_LORA": "true", "OPTION_MAX_MODEL_LEN": "64"}
    with serving(byte_model(tmp_path), tmp_path / "log", **options) as server:
        engine = server.engine_pid()
        done = subprocess.run(
            [
                str(program), "run", f"{server.url}/openapi.json", "--no-color",
                "--seed", "1", "--max-examples", EXAMPLES, "--phases", "coverage,fuzzing",
                "--generation-database", "none", "--request-timeout", "60", "--checks", CHECKS,
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert "Coverage" in done.stdout
        with server.client() as client:
            assert is_idle(client)
        assert server.engine_pid() == engine

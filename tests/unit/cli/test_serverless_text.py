"""Lines of `hostelry status` about serverless variants."""

import pytest

from hostelry.cli.status_text import environment_lines


@pytest.mark.parametrize(
    ("ready", "starting", "provisioned", "used_at", "expected"),
    [
        pytest.param(0, 0, 0, None,
            "  serverless main  0 of at most 5 environments ready, 1024 MB each", id="at zero"),
        pytest.param(1, 2, 1, 970.0,
            "  serverless main  1 of at most 5 environments ready, 2 starting, 1 provisioned,"
            " 1024 MB each  last used 30s ago", id="starting"),
    ],
)  # fmt: skip
def test_what_a_serverless_variant_is_doing(
    ready: int, starting: int, provisioned: int, used_at: float | None, expected: str
) -> None:
    serverless = {
        "memory_mb": 1024,
        "max_concurrency": 5,
        "provisioned_concurrency": provisioned,
        "ready": ready,
        "starting": starting,
    }
    endpoint = {
        "variants": [{"name": "main", "serverless": serverless}],
        "copies": [{"last_used_at": used_at}],
    }
    assert environment_lines(endpoint, 1000.0) == [expected]

"""Endpoints that serve less than their status promises."""

import pytest

from hostelry.domain.trouble import ServedPart, summarize_serving


def part(ready: int, desired: int | None, status: str = "InService") -> ServedPart:
    return ServedPart(status=status, ready=ready, desired=desired)


FAILED = part(0, 1, "Failed")
FAILED_ADAPTER = part(0, None, "Failed")


@pytest.mark.parametrize(
    ("status", "parts", "tone", "trouble"),
    [
        pytest.param("InService", [part(3, 3)], None, None, id="all are ready"),
        pytest.param(
            "InService", [part(0, 300)], "bad", "serves nothing: 0 of 300 copies ready", id="none"
        ),
        pytest.param(
            "InService", [part(299, 300)], "warn", "serves in part: 299 of 300 copies ready",
            id="one is missing",
        ),
        pytest.param("InService", [part(0, 0)], None, None, id="scaled to zero"),
        pytest.param("InService", [], None, None, id="no component yet"),
        pytest.param(
            "InService", [FAILED, FAILED], "bad",
            "serves nothing: 0 of 2 copies ready, 2 of 2 components failed",
            id="all components failed",
        ),
        pytest.param(
            "InService", [part(1, 1), FAILED], "warn",
            "serves in part: 1 of 2 copies ready, 1 of 2 components failed",
            id="one component failed",
        ),
        pytest.param(
            "InService", [part(1, 1), FAILED_ADAPTER], "warn",
            "serves in part: 1 of 2 components failed", id="an adapter failed",
        ),
        pytest.param(
            "InService", [part(0, 2, "Creating")], None, None, id="a component is being created"
        ),
        pytest.param("Updating", [part(0, 1)], "bad", "serves nothing: 0 of 1 copy ready",
                     id="an update of what serves nothing"),
        pytest.param("Failed", [part(0, 3, "Failed")], None, None, id="its status says enough"),
        pytest.param("Creating", [part(0, 3, "Creating")], None, None, id="it comes up"),
    ],
)  # fmt: skip
def test_trouble(
    status: str, parts: list[ServedPart], tone: str | None, trouble: str | None
) -> None:
    found = summarize_serving(status, parts)
    assert (found["tone"], found["trouble"]) == (tone, trouble)

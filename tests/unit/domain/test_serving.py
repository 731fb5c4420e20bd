"""Endpoints that serve less than their status promises."""

from tests.cases import case, cases

from hostelry.domain.trouble import ServedPart, summarize_serving


def part(ready: int, desired: int | None, status: str = "InService") -> ServedPart:
    return ServedPart(status=status, ready=ready, desired=desired)


FAILED = part(0, 1, "Failed")
FAILED_ADAPTER = part(0, None, "Failed")


@cases(
    "status, parts, tone, trouble",
    case("all are ready", "InService", [part(3, 3)], None, None),
    case("none", "InService", [part(0, 300)], "bad", "serves nothing: 0 of 300 copies ready"),
    case("one is missing", "InService", [part(299, 300)], "warn",
        "serves in part: 299 of 300 copies ready"),
    case("scaled to zero", "InService", [part(0, 0)], None, None),
    case("no component yet", "InService", [], None, None),
    case("all components failed", "InService", [FAILED, FAILED], "bad",
        "serves nothing: 0 of 2 copies ready, 2 of 2 components failed"),
    case("one component failed", "InService", [part(1, 1), FAILED], "warn",
        "serves in part: 1 of 2 copies ready, 1 of 2 components failed"),
    case("an adapter failed", "InService", [part(1, 1), FAILED_ADAPTER], "warn",
        "serves in part: 1 of 2 components failed"),
    case("a component is being created", "InService", [part(0, 2, "Creating")], None, None),
    case("an update of what serves nothing", "Updating", [part(0, 1)], "bad",
        "serves nothing: 0 of 1 copy ready"),
    case("its status says enough", "Failed", [part(0, 3, "Failed")], None, None),
    case("it comes up", "Creating", [part(0, 3, "Creating")], None, None),
)  # fmt: skip
def test_trouble(
    status: str, parts: list[ServedPart], tone: str | None, trouble: str | None
) -> None:
    found = summarize_serving(status, parts)
    assert (found["tone"], found["trouble"]) == (tone, trouble)

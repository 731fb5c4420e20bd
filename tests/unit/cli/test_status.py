from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.status import only_endpoint, state_lines

ENDPOINTS = [{"name": it, "status": "InService"} for it in ("chat", "embed")]


def test_one_endpoint_of_several() -> None:
    assert only_endpoint(ENDPOINTS, "embed") == [{"name": "embed", "status": "InService"}]


@pytest.mark.parametrize(
    ("endpoints", "names"),
    [
        pytest.param(ENDPOINTS, "chat, embed", id="another name"),
        pytest.param([], "none", id="no endpoint at all"),
    ],
)
def test_an_unknown_endpoint_is_refused_with_the_known_ones(
    endpoints: list[dict[str, Any]], names: str
) -> None:
    with pytest.raises(TerminalError, match=f"there is no endpoint chap. There are: {names}"):
        only_endpoint(endpoints, "chap")


@pytest.mark.parametrize(
    ("state", "running", "text"),
    [
        pytest.param(None, False, "Not running: start it", id="nothing runs"),
        pytest.param(None, True, "Control does not answer", id="control is silent"),
        pytest.param({"endpoints": []}, True, "No endpoints.", id="nothing was created"),
        pytest.param({"endpoints": ENDPOINTS}, True, "endpoint chat  InService", id="endpoints"),
    ],
)
def test_controls_state_in_words(state: dict[str, Any] | None, running: bool, text: str) -> None:
    assert text in state_lines(state, running=running, alone=False)[0]

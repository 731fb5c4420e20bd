"""The name of a restart or a drain, and the copies or the instance that it stands for."""

from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.acts import drain_target, restart_target

OWN = ("111122223333", "us-east-1")


def endpoint(name: str, *components: str, region: str = "us-east-1") -> dict[str, Any]:
    return {
        "name": name,
        "account": "111122223333",
        "region": region,
        "components": [{"name": it} for it in components],
        "copies": [{"id": f"c-{name}-{region}"}],
        "instances": [{"id": f"i-{name}-{region}"}],
    }


ENDPOINTS = [
    endpoint("chat", "base", region="eu-west-1"),
    endpoint("chat", "base", "spanish"),
    endpoint("other"),
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("c-other-us-east-1", {"copy": "c-other-us-east-1"}, id="a copy"),
        pytest.param("base", {"component": "base"}, id="a component"),
        pytest.param("other", {"endpoint": "other"}, id="an endpoint"),
        pytest.param("endpoint/chat", {"endpoint": "chat"}, id="an endpoint by its kind"),
        pytest.param("base:spanish", {"component": "spanish"}, id="an adapter component"),
    ],
)
def test_a_restart_is_of(name: str, found: dict[str, str]) -> None:
    scope = {"account": OWN[0], "region": OWN[1]}
    assert restart_target(name, ENDPOINTS, OWN) == {**scope, **found}


def test_the_own_region_comes_first_and_another_ones_copy_is_found() -> None:
    assert restart_target("chat", ENDPOINTS, OWN)["region"] == "us-east-1"
    assert restart_target("c-chat-eu-west-1", ENDPOINTS, OWN)["region"] == "eu-west-1"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("chta", "did you mean chat", id="a near miss"),
        pytest.param("base:mine", "`hostelry restart base` restarts it", id="inside an archive"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, why: str) -> None:
    with pytest.raises(TerminalError, match=why):
        restart_target(name, ENDPOINTS, OWN)


def test_a_drain_is_of_an_instance() -> None:
    found = drain_target("i-other-us-east-1", ENDPOINTS, OWN)
    assert found == {"account": OWN[0], "region": OWN[1], "instance": "i-other-us-east-1"}
    with pytest.raises(TerminalError, match="did you mean i-other-us-east-1"):
        drain_target("i-othr-us-east-1", ENDPOINTS, OWN)
    with pytest.raises(TerminalError, match="`hostelry status` shows all"):
        drain_target("zzz", [], OWN)

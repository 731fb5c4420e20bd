"""Options about images."""

from typing import Any

import pytest
from tests.unit.containers.lmi.tiny import config

from hostelry.containers.lmi.settings.option_reader import ConfigurationError

ALLOWED, WANTED = "HOSTELRY_MEDIA_DOMAINS", "OPTION_ALLOWED_MEDIA_DOMAINS"
HOSTS = frozenset({"a.example", "b"})


@pytest.mark.parametrize(
    ("options", "most", "domains"),
    [
        pytest.param({}, None, frozenset(), id="neither"),
        pytest.param({"OPTION_LIMIT_MM_PER_PROMPT": '{"image": 2, "video": 0}'}, 2, frozenset(),
                     id="an object"),
        pytest.param({"OPTION_LIMIT_MM_PER_PROMPT": "image=2"}, 2, frozenset(), id="a pair"),
        pytest.param({ALLOWED: '["A.example", "b"]'}, None, HOSTS, id="a list"),
        pytest.param({ALLOWED: "a.example, b,"}, None, HOSTS, id="commas"),
        pytest.param({WANTED: '["b"]'}, None, frozenset(), id="hosts of the author alone"),
        pytest.param({ALLOWED: "a.example,b", WANTED: '["b", "c"]'}, None, frozenset({"b"}),
                     id="the author leaves one out"),
    ],
)  # fmt: skip
def test_forms(options: dict[str, Any], most: int | None, domains: frozenset[str]) -> None:
    found = config(**options)
    assert (found.max_images, found.media_domains) == (most, domains)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"OPTION_LIMIT_MM_PER_PROMPT": '{"image": 1, "video": 1}'}, "video cannot be sent"),
        ({"OPTION_LIMIT_MM_PER_PROMPT": '{"image": 257}'}, "1 to 256"),
        ({"OPTION_LIMIT_MM_PER_PROMPT": "image=x"}, "image=x"),
        ({"OPTION_LIMIT_MM_PER_PROMPT": "{"}, "LIMIT_MM_PER_PROMPT"),
        ({WANTED: "https://a"}, "no host name"),
        ({ALLOWED: "*"}, "no host name"),
        ({ALLOWED: "["}, ALLOWED),
        ({WANTED: "[" * 5000}, WANTED),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config(**options)
    assert message.lower() in str(caught.value).lower()

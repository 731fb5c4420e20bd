"""Cases of the LLM container's contract: one or more requests with their expected responses.

A case names the row of the contract that it tests. Rows are numbered 1.1 to 1.16, as in the
reference of LMI's container:

    1.1 routes              1.7 errors                    1.13 sessions
    1.2 sources of options  1.8 queues and limits         1.14 custom code
    1.3 options             1.9 health                    1.15 chat templates
    1.4 model folder        1.10 adapters                 1.16 secure mode
    1.5 requests            1.11 choice of an adapter
    1.6 responses           1.12 adapter components
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

OURS, VLLM = "hostelry", "vllm"
JSON, LINES, EVENTS, TEXT = (
    "application/json",
    "application/jsonlines",
    "text/event-stream",
    "text/plain",
)
ROWS = tuple(f"1.{number}" for number in range(1, 17))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server with one backend, and the folders that requests may name."""

    backend: str
    client: httpx.Client
    log: Path
    places: Mapping[str, Path]

    def ask(self, body: Any, path: str = "/invocations", **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    def text(self, **body: Any) -> str:
        """The text of an answer to `inputs`."""
        answer = self.ask(body)
        assert answer.status_code == 200, answer.text
        generated: str = answer.json()["generated_text"]
        return generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its response. `refused` is the response of backends that do not support it."""

    body: Any = None
    path: str = "/invocations"
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    kind: str = JSON
    found: Any = None
    shows: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, tuple[int, Any]] = field(default_factory=dict)

    def check(self, served: Served) -> None:
        places = {name: str(it) for name, it in served.places.items()}
        answer = served.client.request(
            self.method,
            self.path.format_map(places),
            content=self.body if isinstance(self.body, bytes) or self.body is None
            else json.dumps(self.body),
            headers=dict(self.headers),
        )  # fmt: skip
        status, found = self.refused.get(served.backend, (self.status, self.found))
        assert answer.status_code == status, answer.text
        if served.backend not in self.refused:
            assert answer.headers.get("content-type", "").startswith(self.kind), answer.headers
        for name, value in self.shows.items():
            check_fits(answer.headers.get(name), value, name)
        check_fits(content(answer), found, "answer")


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the row `row`. `text` is a sentence."""

    row: str
    text: str
    check: Callable[[Served], None]

    @property
    def name(self) -> str:
        return f"{self.row} {self.text}"


def one(row: str, text: str, body: Any = None, **more: Any) -> Case:
    """A case with one request."""
    return Case(row, text, Exchange(body=body, **more).check)


def get(row: str, text: str, path: str, **more: Any) -> Case:
    """A case with one GET."""
    return one(row, text, path=path, method="GET", **more)


def several(row: str, text: str) -> Callable[[Callable[[Served], None]], Case]:
    """Make a case from a function that sends several requests."""
    return lambda check: Case(row, text, check)


def content(answer: httpx.Response) -> Any:
    """The response's JSON, its lines or events as a list, or its text."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind == JSON:
        return answer.json()
    if kind in (LINES, EVENTS):  # an author's output formatter may give events as lines
        data = [it.removeprefix("data: ") for it in answer.text.split("\n") if it]
        return [it if it == "[DONE]" else json.loads(it) for it in data]
    return answer.text


def check_fits(found: Any, expected: Any, where: str) -> None:
    """Assert that `found` is as expected.

    None matches anything. A function matches if it returns true, a pattern if the text contains
    it, and a mapping if all its members are equal. Further members are allowed.
    """
    if expected is None:
        return
    if isinstance(expected, re.Pattern):
        whole = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        assert expected.search(whole), f"{where} is {found!r}; expected {expected.pattern}"
    elif isinstance(expected, Mapping):
        assert isinstance(found, Mapping), f"{where} is {found!r}"
        for name, value in expected.items():
            assert name in found, f"{where} is {found!r}, without {name}"
            check_fits(found[name], value, f"{where}.{name}")
    elif callable(expected):
        assert expected(found), f"{where} is {found!r}"
    else:
        assert found == expected, f"{where} is {found!r}; expected {expected!r}"


def has(text: str) -> re.Pattern[str]:
    """The pattern for a literal `text`."""
    return re.compile(re.escape(text))


def members(*names: str) -> Callable[[Any], bool]:
    """A test for an object with exactly these members."""
    return lambda found: set(found) == set(names)


def last(expected: Any) -> Callable[[Any], bool]:
    """A test that the last line or event is as expected."""

    def check(found: Any) -> bool:
        check_fits(found[-1], expected, "the last line")
        return True

    return check


def each(expected: Any) -> Callable[[Any], bool]:
    """A test that there is at least one line or event, and all are as expected."""

    def check(found: Any) -> bool:
        for number, it in enumerate(found):
            check_fits(it, expected, f"number {number}")
        return bool(found)

    return check

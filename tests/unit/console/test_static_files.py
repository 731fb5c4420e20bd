"""The page's files neither run nor load code from other places than our files."""

import re
from pathlib import PurePosixPath

import pytest
from tests.cases import case, cases

from hostelry.console.security import static_files

FILES = static_files()
TEXTS = {name: it.content.decode() for name, it in FILES.items()}
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
# Code that a strict content-security policy refuses, or that makes markup of text.
UNSAFE = {
    "markup from text": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser"
    r"|createContextualFragment|setHTMLUnsafe|srcdoc",
    "code from text": r"\beval\b|new Function|import\(|setTimeout\(\s*[\"'`]|javascript:",
    "a worker or a frame": r"new Worker|serviceWorker|<iframe|<object|<embed",
    "another host": r"(https?:|wss?:|[\"'`(])//[a-z0-9]|@import",
    "a cookie": r"document\.cookie",
}
INLINE = r"\son[a-z]+\s*=|<style|\sstyle\s*=|<script(?![^>]*\bsrc=)"


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", UNSAFE)
def test_no_file_has(name: str, kind: str) -> None:
    text = TEXTS[name].replace(SVG_NAMESPACE, "")
    assert not re.findall(UNSAFE[kind], text), f"{name}: {kind}"


@pytest.mark.parametrize("name", [it for it in TEXTS if it.endswith((".html", ".svg"))])
def test_markup_has_no_script_and_no_style_of_its_own(name: str) -> None:
    assert not re.findall(INLINE, TEXTS[name], re.IGNORECASE)


@pytest.mark.parametrize("name", [it for it in TEXTS if it.endswith(".js")])
def test_every_module_that_is_imported_is_there(name: str) -> None:
    for target in re.findall(r"(?:from|import) \"([^\"]+)\"", TEXTS[name]):
        path = PurePosixPath(name).parent
        for part in target.split("/"):
            path = path.parent if part == ".." else path if part == "." else path / part
        assert path.as_posix() in FILES, f"{name} imports {target}"


def test_the_page_names_files_that_are_there() -> None:
    named = re.findall(r"(?:href|src)=\"/console/static/([^\"]+)\"", TEXTS["index.html"])
    assert len(named) == 4
    assert set(named) <= set(FILES)


@cases(
    "text, kind",
    case("innerHTML", "node.innerHTML = text", "markup from text"),
    case("a host without a scheme", 'fetch("//cdn.example/x.js")', "another host"),
    case("a font of another host", "url(https://fonts.example)", "another host"),
    case("eval", "eval(text)", "code from text"),
)
def test_the_rules_find_what_they_forbid(text: str, kind: str) -> None:
    assert re.findall(UNSAFE[kind], text)

"""Each block that a reader may paste runs in a test, or is listed with the reason against it."""

from tests.pasted_blocks import (
    COMMAND,
    INDENTED,
    INDENTED_COMMAND,
    LEFT_OUT,
    PAGES,
    ROOT,
    blocks,
    reason,
)
from tests.unit.test_docs import prose

EVERY = [block for page in PAGES for block in blocks(page)]


def test_a_block_of_commands_is_marked() -> None:
    unmarked = [it for it in EVERY if it.mark == ""]
    wrong = [f"{it.page}:{it.line}" for it in unmarked if COMMAND.match(it.text)]
    assert wrong == [], "mark them `sh`"


def test_commands_in_indented_blocks_are_listed_by_page() -> None:
    texts = {str(it.relative_to(ROOT)): prose(it) for it in PAGES}
    assert {page for page, it in texts.items() if INDENTED_COMMAND.search(it)} == set(INDENTED)


def test_marks_are_known() -> None:
    assert {it.mark for it in EVERY} == {"", "sh", "python", "toml", "yaml"}


def test_the_list_of_what_does_not_run_has_no_line_that_is_gone() -> None:
    commands = [(block.page, it) for block in EVERY for it in block.commands]
    left_out = [(page, first) for page, lines in LEFT_OUT.items() for first in lines]
    found = {
        (page, first)
        for page, first in left_out
        for where, command in commands
        if where == page and command.startswith(first)
    }
    assert found == set(left_out)
    assert reason("README.md", "hostelry up --detach") is None

"""The lines of a log that are about one request. Pure."""

from collections.abc import Iterable

# A traceback is its heading, indented lines, and the line after one of these.
HEADING, INDENTS = "Traceback (most recent", (" ", "\t")


def request_lines(lines: Iterable[str], request_id: str) -> list[str]:
    """The records that name the request, each with the lines that belong to it."""
    found: list[str] = []
    belongs = was_indented = False
    for line in lines:
        is_indented = line.startswith(INDENTS)
        continues = is_indented or was_indented or line.startswith(HEADING)
        belongs = request_id in line or (belongs and continues)
        was_indented = is_indented
        if belongs:
            found.append(line)
    return found

"""Lines of a log file as messages of events. Pure."""

from hostelry.logs.events import MAX_EVENT_BYTES


def messages_of(written: bytes, *, is_final: bool) -> tuple[list[str], int]:
    """The messages in `written`, and the number of bytes that they take.

    A last line without its end is left for later, unless `is_final` or too long for an event.
    Empty lines are no events.
    """
    used = written.rfind(b"\n") + 1
    if is_final or len(written) - used >= MAX_EVENT_BYTES:
        used = len(written)
    messages: list[str] = []
    for line in written[:used].split(b"\n"):
        text = line.rstrip(b"\r")
        parts = (text[at : at + MAX_EVENT_BYTES] for at in range(0, len(text), MAX_EVENT_BYTES))
        messages.extend(part.decode("utf-8", "replace") for part in parts)
    return messages, used

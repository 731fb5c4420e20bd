"""Output of copies that is kept as log events, from the home's file."""

from collections.abc import Callable, Mapping, Sequence

from hostelry.home.home import Home
from hostelry.logs.errors import LogsUnavailable
from hostelry.logs.events import LogStream
from hostelry.logs.store import BEGIN, END, LogStore

Read = Callable[[LogStore, LogStream], list[str]]


def kept_logs(home: Home, name: str, count: int) -> Mapping[str, Sequence[str]]:
    """The last `count` lines of each log stream of an endpoint, component, job, instance or copy.

    Keys name stream and group. Empty where none is kept, or the file cannot be read now.
    """
    return _read(
        home,
        name,
        lambda store, stream: [
            event.message for event in store.read_backwards(stream, BEGIN, END, count)
        ],
    )


def logs_between(
    home: Home, name: str, since: float, until: float, count: int
) -> dict[str, list[str]]:
    """As `kept_logs`, the lines from `since` to `until`, in seconds since the epoch.

    Streams without any are left out.
    """
    start, end = (int(since * 1000), 0), (int(until * 1000), 0)
    found = _read(
        home,
        name,
        lambda store, stream: [
            event.message for event in store.read_backwards(stream, start, end, count)
        ],
    )
    return {title: lines for title, lines in found.items() if lines}


def _read(home: Home, name: str, read: Read) -> dict[str, list[str]]:
    if not home.log_events.exists():
        return {}
    store = LogStore(home.log_events)
    try:
        return {
            f"{stream.name} of {group}": read(store, stream) for group, stream in store.named(name)
        }
    except LogsUnavailable:
        return {}
    finally:
        store.close()

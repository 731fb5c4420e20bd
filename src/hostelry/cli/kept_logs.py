"""Output of copies that are gone, from the home's file of log events."""

from collections.abc import Mapping, Sequence

from hostelry.logs.errors import LogsUnavailable
from hostelry.logs.store import BEGIN, END, LogStore
from hostelry.server.home import Home


def kept_logs(home: Home, name: str, count: int) -> Mapping[str, Sequence[str]]:
    """The last `count` lines of each log stream of an endpoint, component, job, instance or copy.

    Keys name stream and group. Empty where none is kept, or the file cannot be read now.
    """
    if not home.log_events.exists():
        return {}
    store = LogStore(home.log_events)
    try:
        return {
            f"{stream.name} of {group}": [
                event.message for event in store.read_backwards(stream, BEGIN, END, count)
            ]
            for group, stream in store.named(name)
        }
    except LogsUnavailable:
        return {}
    finally:
        store.close()

"""Reports for tests: workers with one name, second by second."""

from typing import Any

from hostelry.domain.load import LoadKey, LoadReport, SecondLoad
from hostelry.domain.scope import Scope

SCOPE = Scope("111122223333", "us-west-2")
CHAT = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="all", component_name="chat")
CODE = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="all", component_name="code")
T0 = 1_700_000_000


def load(second: int, key: LoadKey = CHAT, **members: Any) -> SecondLoad:
    return SecondLoad(key=key, second=second, **members)


def report(
    worker: str,
    sequence: int,
    *seconds: SecondLoad,
    first: int | None = None,
    through: int | None = None,
    started_at: float = 1.0,
) -> LoadReport:
    """A report that covers exactly its seconds, unless `first` and `through` say otherwise."""
    covered = [it.second for it in seconds]
    return LoadReport(
        worker=worker,
        started_at=started_at,
        sequence=sequence,
        seconds=seconds,
        first=min(covered) if first is None else first,
        through=max(covered) if through is None else through,
    )

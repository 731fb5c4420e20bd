"""Context of a drill: the platform, the load's target and its number of callers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.home.aws_client import aws_client
from hostelry_lab.copies_ledger import MOST_COPIES
from hostelry_lab.fixture import DrillFixture
from hostelry_lab.jobs.plan import SHORT, JobsSizes
from hostelry_lab.load import Load, LoadTarget
from hostelry_lab.observer import PlatformObserver, copies_in

OWN_COPIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillContext:
    """Arguments of every drill. `progress` prints lines for the operator."""

    platform: PlatformObserver
    load_target: LoadTarget
    num_threads: int
    progress: Callable[[str], None]
    jobs_sizes: JobsSizes = SHORT
    most_copies: int = MOST_COPIES

    def load(self, load_target: LoadTarget | None = None, pause_s: float = 0.0) -> Load:
        """Load on the context's target, or on `load_target`. It begins with `flowing`."""
        runtime = aws_client("sagemaker-runtime", self.platform.config, self.platform.credentials)
        return Load(runtime, load_target or self.load_target, self.num_threads, pause_s)

    def copies(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The ready copies that the load may reach."""
        ready = (it for it in copies_in(state) if it["phase"] == "ready")
        return [it for it in ready if self._is_mine(it, state)]

    def _is_mine(self, copy: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        mine = next(it for it in state["endpoints"] if it["name"] == self.load_target.endpoint)
        if copy["id"] not in {it["id"] for it in mine["copies"]}:
            return False
        if self.load_target.component is None:
            return True
        named = (it for it in mine["components"] if it["name"] == self.load_target.component)
        base = next(named)["base"] or self.load_target.component
        return bool(copy["owner"] == f"component/{base}")


@contextmanager
def drill_context(
    platform: PlatformObserver,
    endpoint: str | None,
    component: str | None,
    num_threads: int,
    progress: Callable[[str], None],
    jobs_sizes: JobsSizes = SHORT,
    most_copies: int = MOST_COPIES,
) -> Iterator[DrillContext]:
    """The context on the named, or the first, component or model endpoint with ready copies.

    If none can be invoked and none is named, an endpoint with a component of two copies is created
    for the block. Raises TerminalError if the named one cannot be invoked.
    """
    make = partial(
        DrillContext,
        platform=platform,
        num_threads=num_threads,
        progress=progress,
        jobs_sizes=jobs_sizes,
        most_copies=most_copies,
    )
    load_target = find_load_target(platform, endpoint, component)
    if load_target is not None:
        yield make(load_target=load_target)
        return
    with DrillFixture(platform).deploy() as fixture:
        progress("nothing can be invoked here: the drill creates an endpoint of its own")
        name = fixture.add(copies=OWN_COPIES)
        fixture.wait_ready(name, OWN_COPIES)
        yield make(load_target=fixture.load_target(name))


def find_load_target(
    platform: PlatformObserver, endpoint: str | None, component: str | None
) -> LoadTarget | None:
    """The first target that matches the names, with its image's own probe as the request."""
    state = platform.known_state()
    for shown in state["endpoints"]:
        if endpoint is not None and shown["name"] != endpoint:
            continue
        for name, owner in _invocable(shown):
            load_target = _load_target(platform, shown, name, owner)
            if load_target is not None and component in (None, name):
                return load_target
    if endpoint is not None or component is not None:
        named = "/".join(it for it in (endpoint, component) if it is not None)
        raise TerminalError(f"{named} has no ready copy to invoke: see `hostelry status`")
    return None


def _invocable(endpoint: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Component (None for a model endpoint) and the owner of its copies. Adapters come last."""
    if not endpoint["takes_components"]:
        yield from {(None, it["owner"]): None for it in endpoint["copies"]}
        return
    for component in sorted(endpoint["components"], key=lambda it: it["base"] is not None):
        base = component["base"] or component["name"]
        yield component["name"], f"component/{base}"


def _load_target(
    platform: PlatformObserver, endpoint: Mapping[str, Any], component: str | None, owner: str
) -> LoadTarget | None:
    copies = (it for it in endpoint["copies"] if it["owner"] == owner and it["phase"] == "ready")
    records = (platform.copy_record(it) for it in copies)
    rule = next((it.rule for it in records if it is not None and it.rule is not None), None)
    if rule is None:
        return None
    return LoadTarget(
        endpoint=endpoint["name"],
        component=component,
        content_type=rule.probe.content_type,
        body=rule.probe.body,
    )

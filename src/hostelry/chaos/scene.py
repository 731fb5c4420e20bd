"""Where a drill is played: the platform, what the load invokes, and how hard."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.chaos.load import Aim, Load, client
from hostelry.chaos.sight import Platform, copies_in
from hostelry.chaos.stage import Stage

OWN_COPIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What every drill is given; `say` gets a line as it goes on."""

    platform: Platform
    aim: Aim
    num_threads: int
    say: Callable[[str], None]

    def load(self, aim: Aim | None = None, pause_s: float = 0.0) -> Load:
        """Load on what is drilled, or on `aim`; it begins with `flowing`."""
        runtime = client("sagemaker-runtime", self.platform.config, self.platform.credentials)
        return Load(runtime, aim or self.aim, self.num_threads, pause_s)

    def copies(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The ready copies that the load may reach."""
        return [
            it for it in copies_in(state) if it["phase"] == "ready" and self._is_mine(it, state)
        ]

    def _is_mine(self, copy: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
        mine = next(it for it in state["endpoints"] if it["name"] == self.aim.endpoint)
        if copy["id"] not in {it["id"] for it in mine["copies"]}:
            return False
        if self.aim.component is None:
            return True
        named = (it for it in mine["components"] if it["name"] == self.aim.component)
        base = next(named)["base"] or self.aim.component
        return bool(copy["owner"] == f"component/{base}")


@contextmanager
def scene_of(
    platform: Platform,
    endpoint: str | None,
    component: str | None,
    num_threads: int,
    say: Callable[[str], None],
) -> Iterator[Scene]:
    """The scene on a given, or the first, component or model endpoint that has ready copies.

    Where there is nothing to invoke and nothing was named, an endpoint with a component of two
    copies is made for the block. Raises TerminalError where what was named cannot be invoked.
    """
    aim = find_aim(platform, endpoint, component)
    if aim is not None:
        yield Scene(platform=platform, aim=aim, num_threads=num_threads, say=say)
        return
    with Stage(platform).standing() as stage:
        say("nothing can be invoked here: the drill makes an endpoint of its own")
        name = stage.add(copies=OWN_COPIES)
        stage.wait_ready(name, OWN_COPIES)
        yield Scene(platform=platform, aim=stage.aim(name), num_threads=num_threads, say=say)


def find_aim(platform: Platform, endpoint: str | None, component: str | None) -> Aim | None:
    """What can be invoked of what was named, with its image's own probe as the request."""
    state = platform.known_state()
    for shown in state["endpoints"]:
        if endpoint is not None and shown["name"] != endpoint:
            continue
        for name, owner in _invocable(shown):
            aim = _aim(platform, shown, name, owner)
            if aim is not None and component in (None, name):
                return aim
    if endpoint is not None or component is not None:
        named = "/".join(it for it in (endpoint, component) if it is not None)
        raise TerminalError(f"{named} has no ready copy to invoke: see `hostelry status`")
    return None


def _invocable(endpoint: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Component (None: a model endpoint) and the owner of its copies; adapters come last."""
    if not endpoint["takes_components"]:
        yield from {(None, it["owner"]): None for it in endpoint["copies"]}
        return
    for component in sorted(endpoint["components"], key=lambda it: it["base"] is not None):
        base = component["base"] or component["name"]
        yield component["name"], f"component/{base}"


def _aim(
    platform: Platform, endpoint: Mapping[str, Any], component: str | None, owner: str
) -> Aim | None:
    copies = (it for it in endpoint["copies"] if it["owner"] == owner and it["phase"] == "ready")
    records = (platform.copy_record(it) for it in copies)
    rule = next((it.rule for it in records if it is not None and it.rule is not None), None)
    if rule is None:
        return None
    return Aim(
        endpoint=endpoint["name"],
        component=component,
        content_type=rule.probe.content_type,
        body=rule.probe.body,
    )

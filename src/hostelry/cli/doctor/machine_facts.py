"""Values for the facts that probes find about a machine. None means that a probe had no answer."""

from collections.abc import Mapping

import msgspec


class LateProblem(str):
    """The problem of a probe that did not end in time. It says nothing about a remedy."""

    __slots__ = ()


class EngineModules(msgspec.Struct, frozen=True, kw_only=True):
    """The report of the engine's own interpreter. `kernels` are instruction sets, fastest first.

    `no_triton` says why Triton's kernels cannot run on the first device, if there is a device.
    """

    torch: str
    cuda: str | None
    devices: tuple[str, ...]
    kernels: tuple[str, ...]
    no_kernels: str | None
    triton: str | None = None
    no_triton: str | None = None


class PortFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A port that `up` listens on. `is_own` is true if the platform of this home uses it."""

    use: str
    port: int
    is_free: bool
    is_own: bool


class HomeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The home folder. `is_writable` is about `parent`, the first folder that exists.

    `open_files` are files with keys that other users of the machine can read. `used_bytes` has the
    sizes of growing data by purpose. Very large folders are counted in part.
    """

    path: str
    exists: bool
    parent: str
    is_writable: bool
    free_bytes: int
    open_files: tuple[str, ...] = ()
    used_bytes: Mapping[str, int] = msgspec.field(default_factory=dict)


class PlatformFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The platform of the home: its running processes, and the version that control reports.

    `standbys` counts the controls without the leader. None if there is a single control.
    """

    running: int
    version: str | None
    answers: bool
    has_leader: bool = True
    standbys: int | None = None


class HubFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The Hugging Face hub. `skew_s` is how far this clock is ahead of the hub's."""

    url: str
    is_offline: bool
    is_reachable: bool
    problem: str | None
    cached_models: int
    skew_s: float | None


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts. A field `..._problem` says why a fact is unknown.

    `limited` has the controllers by which the kernel can limit a control group of this process.
    """

    version: str
    python: tuple[int, int, int]
    system: str
    architecture: str
    cpus: int
    cpu_name: str
    memory_bytes: int
    memory_free_bytes: int
    uid: int
    copy_user_problem: str | None
    max_open_files: int
    nvidia: tuple[str, ...]
    nvidia_driver: str | None
    nvidia_devices: int
    engine: EngineModules | None
    engine_problem: str | None
    cgroup_version: int | None
    limited: tuple[str, ...]
    containers: str | None
    containers_keep_limits: bool
    containers_problem: str | None
    object_store: str | None
    chromium: str | None
    runtimes: tuple[str, ...]
    ports: tuple[PortFacts, ...]
    home: HomeFacts
    platform: PlatformFacts
    hub: HubFacts

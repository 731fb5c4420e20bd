"""A separate Ray cluster for a test. The test's process can connect to it."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from hostelry_lab.cluster.ray_nodes import RayNodes


class RayCluster(RayNodes):
    """Nodes by address. Tests look at single processes of them."""

    def running(self, node: str, module: str) -> list[int]:
        """The processes on the node that run `module`."""
        found = []
        for pid in self.processes(node):
            with suppress(OSError):
                if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(pid)
        return found


@contextmanager
def ray_cluster(resources: Mapping[str, float], *options: str) -> Iterator[RayCluster]:
    """Start a head with `resources` and a separate token, which this process has in the block."""
    with closing(RayCluster()) as cluster, pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            patch.setenv(name, cluster.environment[name])
        cluster.add(resources, *options)
        yield cluster

"""Settings of the measurements of many models, the models, and the peers."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.platform import Platform

from benchmarks.many_models_platform import BUCKET, PREFIX, client_environment
from benchmarks.peers.many_models import RayModels, TritonModels, running_ray, running_triton
from benchmarks.peers.model_shelf import ModelShelf
from hostelry.base.ports import free_port

TOLERANCE = 1e-6
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much is measured. `scale` multiplies the sizes of models."""

    num_models: int
    scale: float
    num_requests: int
    rounds: int
    cold: int
    warm: int
    peer_s: float
    together: int
    callers: int = 4


SETTINGS = {
    "smoke": Setting(
        num_models=12, scale=1, num_requests=60, rounds=1, cold=2, warm=10, peer_s=5, together=3
    ),
    "short": Setting(
        num_models=250, scale=3, num_requests=1500, rounds=3, cold=3, warm=100, peer_s=20,
        together=15,
    ),
    "full": Setting(
        num_models=1000, scale=1, num_requests=3000, rounds=5, cold=3, warm=200, peer_s=30,
        together=30,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The inputs of all measurements. `small` and `mixed` are different models."""

    setting: Setting
    scratch: Path
    models: Path
    python: Path
    platform: Platform
    answers: Mapping[str, float]
    small: Sequence[str]
    mixed: Sequence[str]
    peers: Mapping[str, Path]

    def checked(self, shelf: ModelShelf, target: str) -> tuple[float, bool | None]:
        """Seconds of a request, and whether the model was loaded. A wrong answer is an error."""
        answered = shelf.call(target)
        if abs(answered.predicted - self.answers[target]) > TOLERANCE:
            raise RuntimeError(f"{shelf.name} answers {answered.predicted} for {target}")
        return answered.took_s, answered.hit


@contextlib.contextmanager
def running_peer(bench: Bench, name: str, most: int) -> Iterator[RayModels | TritonModels]:
    """The peer, which holds at most `most` models."""
    port, environment = free_port(), bench.peers[name]
    with contextlib.ExitStack() as stack:
        if name == "ray":
            variables = client_environment(bench.platform)
            yield stack.enter_context(running_ray(environment, port, most, BUCKET, variables))
            return
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=bench.scratch)))
        s3 = bench.platform.boto3("s3", s3={"addressing_style": "path"})

        def fetch(target: str) -> bytes:
            content: bytes = s3.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{target}")["Body"].read()
            return content

        yield stack.enter_context(running_triton(environment, port, most, fetch, scratch))

"""The parts of a loaded engine, as `loading` and `pooled_loading` make them."""

from collections.abc import Callable

import msgspec

from hostelry.engine.config import EngineConfig
from hostelry.engine.fused_adapter import Merge
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.store import AdapterStore
from hostelry.engine.lora.uploads import Placer
from hostelry.engine.models.spec import ServedSpec
from hostelry.engine.pooled import PoolingFacts
from hostelry.engine.pooling.pooler import Pooler
from hostelry.engine.runner.leader import Leader
from hostelry.engine.sampling.structure_compiler import StructureCompiler


class EngineDeps(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model and the parts that run it.

    `spec` has the computing dtype and length. With a `pooler` the model gives vectors: a request
    ends with its first token, and `max_model_len` is one more than a text may have. `config` has
    the settings as the model changed them (None: unchanged). `merge` is set with the setting
    `fuse_adapter`.
    """

    spec: ServedSpec
    decoder: Decoder
    pool: PoolTensor
    store: AdapterStore
    placer: Placer
    structures: StructureCompiler
    min_adapter_pages: int
    kernels: str
    warnings: tuple[str, ...]
    leader: Leader | None = None
    pooling: PoolingFacts | None = None
    pooler: Pooler | None = None
    config: EngineConfig | None = None
    merge: Merge | None = None

    @property
    def failure(self) -> str | None:
        """Why no more steps can be computed, after a failure of a rank. Otherwise None."""
        return None if self.leader is None else self.leader.failure

    def watch(self, on_failure: Callable[[str], None]) -> None:
        """Have a thread call `on_failure` with the reason once another rank has ended."""
        if self.leader is not None:
            self.leader.watch(on_failure)

    def close(self) -> None:
        """End the threads that load adapters, and other ranks."""
        self.store.close()
        if self.leader is not None:
            self.leader.close()

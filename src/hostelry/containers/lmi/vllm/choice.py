"""The choice of the engine that serves the model: ours, or vLLM in its own process.

option.backend   rolling_batch   vLLM is installed   tried, in this order
---------------  --------------  ------------------  ----------------------------------------
hostelry         any             any                 ours
vllm             any             yes                 vLLM
vllm             any             no                  refused: how to install it
auto             vllm            yes                 vLLM
auto             vllm            no                  ours, with a line in the log
auto             another         yes                 ours; vLLM for a model ours cannot read
auto             another         no                  ours; its refusal says how to install vLLM
"""

import logging
import os

from hostelry.containers.lmi.engine.backend import (
    EngineFailedError,
    ModelFacts,
    ModelUnsupportedError,
)
from hostelry.containers.lmi.engine.child import ForkedEngine, reap, spawn_engine
from hostelry.containers.lmi.engine.messages import StartEngine
from hostelry.containers.lmi.engine.process_backend import ProcessBackend, Spawn
from hostelry.containers.lmi.settings.config import Backend, LmiConfig
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.vllm.launch import vllm_spawner, why_not

log = logging.getLogger(__name__)


def backends_to_try(config: LmiConfig, missing: str | None) -> tuple[Backend, ...]:
    """The engines in order; `missing` is why vLLM cannot be started. Raises ConfigurationError."""
    if config.backend is Backend.HOSTELRY:
        return (Backend.HOSTELRY,)
    if config.backend is Backend.VLLM:
        if missing is not None:
            raise ConfigurationError(f"option.backend is vllm, but {missing}")
        return (Backend.VLLM,)
    if config.rolling_batch_is_vllm:
        return (Backend.HOSTELRY,) if missing else (Backend.VLLM,)
    return (Backend.HOSTELRY,) if missing else (Backend.HOSTELRY, Backend.VLLM)


class ChosenEngine:
    """The engine of the configuration's choice: `start`, `wait_ready`, use `backend`, `close`.

    `forked` is our engine's process where it exists already.
    """

    def __init__(self, config: LmiConfig, forked: ForkedEngine | None = None) -> None:
        self._config = config
        self._forked = forked
        self._start: StartEngine | None = None
        self._left: tuple[Backend, ...] = ()
        self._missing: str | None = None
        self._chosen: ProcessBackend | None = None
        self.name: Backend = Backend.HOSTELRY

    @property
    def backend(self) -> ProcessBackend:
        """The engine that was started last."""
        assert self._chosen is not None, "it is started"
        return self._chosen

    async def start(self, start: StartEngine) -> None:
        """Start the first engine to try. Raises ConfigurationError."""
        self._start = start
        config = self._config
        self._missing = why_not(config.runtimes_dir, use_accelerators=config.use_accelerators)
        self._left = backends_to_try(config, self._missing)
        if config.rolling_batch_is_vllm and self._left == (Backend.HOSTELRY,):
            reason = self._missing or "option.backend is hostelry"
            log.warning("rolling_batch=vllm runs on our own engine: %s", reason)
        await self._start_next(start)

    async def wait_ready(self) -> ModelFacts:
        """The facts of the model once an engine has loaded it; raises EngineFailedError."""
        assert self._start is not None, "it is started"
        try:
            return await self.backend.wait_ready()
        except ModelUnsupportedError as error:
            if not self._left:
                raise EngineFailedError(f"{error}{self._advice()}") from error
            log.warning("our own engine does not read this model: %s; vLLM is asked", error)
            refusal = str(error)
        await self.backend.close()
        await self._start_next(self._start)
        try:
            return await self.backend.wait_ready()
        except EngineFailedError as error:
            raise EngineFailedError(f"our own engine: {refusal}; {error}") from error

    async def close(self) -> None:
        """Stop what runs and wait for its exit."""
        if self._chosen is not None:
            await self._chosen.close()
        if self._forked is not None:
            self._forked.stream.close()
            reap(self._forked)

    async def _start_next(self, start: StartEngine) -> None:
        self.name, *left = self._left
        self._left = tuple(left)
        if self.name is Backend.VLLM:
            spawn = vllm_spawner(self._config.runtimes_dir, os.environ)
            self._chosen = ProcessBackend(spawn=spawn)
        else:
            self._chosen = ProcessBackend(spawn=self._ours())
        log.info("the engine is %s", self.name.value)
        await self._chosen.start(start)

    def _ours(self) -> Spawn:
        forked, self._forked = self._forked, None
        if forked is None:
            return spawn_engine
        return lambda _: (forked, forked.stream)

    def _advice(self) -> str:
        """What would help with a model that our engine does not read."""
        if self._config.backend is Backend.HOSTELRY:
            return "; vLLM may read it: option.backend=auto"
        return f"; vLLM may read it, but {self._missing}" if self._missing else ""

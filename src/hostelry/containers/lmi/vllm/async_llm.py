"""vLLM's AsyncLLM behind `interface.Vllm`: the only module that imports vLLM."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from hostelry.containers.lmi.engine.backend import EngineFailedError, ModelFacts
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.ranks import RankChoice
from hostelry.containers.lmi.vllm.adapters import VllmAdapter
from hostelry.containers.lmi.vllm.arguments import engine_arguments, follow_choice
from hostelry.containers.lmi.vllm.interface import Generated
from hostelry.containers.lmi.vllm.sizes import Gpu
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.request import Request

SHUTDOWN_S = 1.0

LOG = logging.getLogger(__name__)


def find_gpu() -> Gpu | None:
    """The GPUs that vLLM computes on. None on CPUs."""
    if current_platform.is_cpu():
        return None
    return Gpu(
        name=current_platform.get_device_name(),
        memory_bytes=current_platform.get_device_total_memory(),
    )


class AsyncVllm:
    """One vLLM engine, made and used in one running event loop."""

    def __init__(
        self,
        folder: str,
        settings: EngineSettings,
        *,
        end_token_ids: Sequence[int],
        gpu: Gpu | None,
        memory_bytes: int,
        width: int | None,
    ) -> None:
        devices = 0 if gpu is None else torch.cuda.device_count()
        settings, choice = follow_choice(
            settings, devices=devices, cpus=len(os.sched_getaffinity(0))
        )
        LOG.info("%s", choice.reason)
        arguments = engine_arguments(
            folder, settings, gpu=gpu, memory_bytes=memory_bytes, width=width
        )
        self.num_steps = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self._usage = 0.0
        self._ends = tuple(end_token_ids)
        self._llm = AsyncLLM.from_engine_args(
            AsyncEngineArgs(**arguments), stat_loggers=[lambda *_: StepRecorder(self)]
        )
        model = self._llm.vllm_config.model_config
        self._facts = ModelFacts(
            vocab_size=model.get_vocab_size(),
            max_model_len=model.max_model_len,
            eos_token_ids=self._ends,
            dtype=str(model.dtype).removeprefix("torch."),
            warnings=find_warnings(settings, choice, model.max_model_len),
            ranks=choice.ranks,
            max_images=arguments["limit_mm_per_prompt"]["image"]
            if model.is_multimodal_model
            else 0,
            max_batch_size=settings.max_batch_size,
        )

    @property
    def facts(self) -> ModelFacts:
        """The loaded model."""
        return self._facts

    @property
    def failure(self) -> str | None:
        """The reason why vLLM can no longer compute. None while it can."""
        return "vLLM's engine core died; its log lines say why" if self._llm.errored else None

    @property
    def num_pages(self) -> int:
        """Blocks of the KV cache."""
        return self._llm.vllm_config.cache_config.num_gpu_blocks or 0

    @property
    def num_used_pages(self) -> int:
        """Blocks in use at the last step."""
        return round(self._usage * self.num_pages)

    async def generate(
        self, request: Request, arguments: Mapping[str, Any], adapter: VllmAdapter | None
    ) -> AsyncGenerator[Generated]:
        """The request's outputs (see Vllm)."""
        try:
            results = self._llm.generate(
                await build_prompt(request),
                sampling_params(arguments),
                request.id,
                lora_request=None if adapter is None else lora_request(adapter),
            )
            async for each in results:
                yield each
        except EngineDeadError as error:
            raise EngineFailedError(str(error)) from error
        except EngineGenerateError as error:
            raise RuntimeError(f"vLLM: {error.__cause__ or error}") from error

    async def add_adapter(self, adapter: VllmAdapter) -> list[str]:
        """Load the adapter (see Vllm)."""
        try:
            await self._llm.collective_rpc("spare_base_rows")
            await self._llm.add_lora(lora_request(adapter))
            unused = await self._llm.collective_rpc(
                "unused_adapter_modules", args=(adapter.number,)
            )
        except EngineDeadError as error:
            raise EngineFailedError(str(error)) from error
        except Exception as error:  # vLLM sends its workers' errors as plain ones
            raise AdapterError(f"vLLM cannot load it: {error}") from error
        return sorted({name for names in unused for name in names})

    async def remove_adapter(self, adapter: VllmAdapter) -> None:
        """Forget the adapter (see Vllm)."""
        try:
            await self._llm.remove_lora(adapter.number)
        except EngineDeadError as error:
            raise EngineFailedError(str(error)) from error

    def shutdown(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown(timeout=SHUTDOWN_S)

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Take the numbers of a step."""
        self.num_steps += 1
        if scheduler is not None:
            self._usage = scheduler.kv_cache_usage
            self.cached_tokens += scheduler.prefix_cache_stats.hits
        if iteration is not None:
            self.preemptions += iteration.num_preempted_reqs


async def build_prompt(request: Request) -> TokensPrompt:
    """The prompt as vLLM takes it. Raises ValueError for an image that cannot be read."""
    prompt = TokensPrompt(prompt_token_ids=list(request.prompt_token_ids))
    if request.images:
        # The runtime has PIL, which is imported only for images.
        from hostelry.containers.lmi.vllm.images import decode_images

        prompt["multi_modal_data"] = {
            "image": await asyncio.to_thread(decode_images, request.images)
        }
    return prompt


class StepRecorder:
    """A logger of statistics, as vLLM calls one after each step."""

    def __init__(self, owner: AsyncVllm) -> None:
        self._owner = owner

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        """Take the numbers of a step."""
        self._owner.record(scheduler_stats, iteration_stats)

    def log(self) -> None:
        """Nothing: the server shows the numbers."""

    def log_engine_initialized(self) -> None:
        """Nothing: ModelLoaded says it."""

    def record_sleep_state(self, *_: Any) -> None:
        """Nothing: it never sleeps."""


def sampling_params(arguments: Mapping[str, Any]) -> Any:
    """VLLM's SamplingParams. Raises ValueError for arguments that vLLM refuses."""
    structure = arguments["structured_outputs"]
    return SamplingParams(
        **{
            **arguments,
            "structured_outputs": StructuredOutputsParams(**structure) if structure else None,
        },
        output_kind=RequestOutputKind.DELTA,
    )


def lora_request(adapter: VllmAdapter) -> Any:
    """The adapter as requests name it to vLLM."""
    return LoRARequest(adapter.key, adapter.number, str(adapter.folder))


def find_warnings(
    settings: EngineSettings, choice: RankChoice, max_model_len: int
) -> tuple[str, ...]:
    """The differences from the settings or from our own engine."""
    found = [] if choice.warning is None else [choice.warning]
    if settings.max_model_len is None:
        found.append(f"with vLLM a request has at most {max_model_len} tokens, as its cache allows")
    if settings.adapter_cache_folder:
        found.append("vLLM keeps adapters itself: the adapter cache is not used")
    return tuple(found)

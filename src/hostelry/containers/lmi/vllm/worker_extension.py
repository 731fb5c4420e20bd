"""Calls to vLLM's workers in addition to its own."""

from collections.abc import Sequence
from typing import Any

CPU_WRAPPER = "PunicaWrapperCPU"


class AdapterCheck:
    """Mixed into vLLM's worker class by its option `worker_extension_cls`."""

    model_runner: Any

    def spare_base_rows(self) -> None:
        """Keep adapters from changing rows of the base model in a mixed batch on CPUs.

        vLLM marks these rows with slot -1, which its CPU kernels take for the last slot. Once the
        last slot is in use, the base model would answer with that slot's adapter. Idempotent.
        """
        adapters = self.model_runner.lora_manager._adapter_manager
        for wrapper in set(adapters.punica_wrapper_mapping.values()):
            if type(wrapper).__name__ == CPU_WRAPPER and "add_shrink" not in vars(wrapper):
                wrapper.add_shrink = BaseRowsSpared(wrapper, wrapper.add_shrink)

    def unused_adapter_modules(self, number: int) -> list[str]:
        """The modules of a loaded adapter that no layer of this model takes.

        vLLM ignores them without a message. If it ignores all, the adapter has no effect.
        """
        adapters = self.model_runner.lora_manager._adapter_manager
        adapter = adapters.get_adapter(number)
        if adapter is None:
            return ["all of them: the adapter is not loaded"]
        return sorted(set(adapter.loras) - set(adapters.modules))


class BaseRowsSpared:
    """VLLM's product with A, and zero for rows without an adapter."""

    def __init__(self, wrapper: Any, add_shrink: Any) -> None:
        self._wrapper = wrapper
        self._add_shrink = add_shrink

    def __call__(self, y: Sequence[Any], *arguments: Any, **more: Any) -> None:
        """As vLLM's own. `y` holds a matrix of rows by ranks for each slice."""
        self._add_shrink(y, *arguments, **more)
        is_base = self._wrapper.token_lora_indices < 0
        if is_base.any():
            for each in y:
                each.view(-1, each.shape[-1])[is_base] = 0

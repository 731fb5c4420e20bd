"""Calls to vLLM's workers beside its own."""

from typing import Any


class AdapterCheck:
    """Mixed into vLLM's worker class by its option `worker_extension_cls`."""

    model_runner: Any

    def unused_adapter_modules(self, number: int) -> list[str]:
        """The modules of a loaded adapter that no layer of this model takes.

        vLLM drops them without a word, and an adapter of which it takes none is the base model.
        """
        adapters = self.model_runner.lora_manager._adapter_manager
        adapter = adapters.get_adapter(number)
        if adapter is None:
            return ["all of them: the adapter is not loaded"]
        return sorted(set(adapter.loras) - set(adapters.modules))

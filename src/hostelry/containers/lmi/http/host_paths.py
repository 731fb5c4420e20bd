"""Texts for callers, without paths of this machine. Pure."""

from collections.abc import Iterable

from hostelry.containers.lmi.artifact_path import CONTAINER_MODEL_DIR
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord
from hostelry.containers.lmi.settings.config import LmiConfig


def without_host_paths(text: str, config: LmiConfig, adapters: Iterable[AdapterRecord]) -> str:
    """`text` with the folders of the model and the adapters under names that callers know.

    The model's folders have the container's path, an adapter's folder its alias.
    """
    if "/" not in text:
        return text
    model = str(CONTAINER_MODEL_DIR)
    folders = (config.model_dir, *config.artifact_folders, config.hub_folder)
    names = {str(folder): model for folder in folders if folder is not None}
    names |= (
        {str(config.adapter_cache_dir): "the adapter cache"} if config.adapter_cache_dir else {}
    )
    names |= {it.src: f"adapter {it.alias}" for it in adapters if it.src.startswith("/")}
    for folder in sorted(names, key=len, reverse=True):  # the inner ones first
        if folder.startswith("/") and folder != "/":
            text = text.replace(folder, names[folder])
    return text

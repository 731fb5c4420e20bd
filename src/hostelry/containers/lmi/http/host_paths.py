"""Texts for callers, without paths of this machine. Pure."""

import re
from collections.abc import Iterable

from hostelry.base.shown_paths import AFTER
from hostelry.containers.lmi.artifact_path import CONTAINER_MODEL_DIR
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord
from hostelry.containers.lmi.settings.config import LmiConfig

BEFORE = r"(?<![\w.~-])(?<!:/)"  # a path of its own, or that of file://


def without_host_paths(text: str, config: LmiConfig, adapters: Iterable[AdapterRecord]) -> str:
    """`text` with the folders of the model and the adapters under names that callers know.

    The model's folders have the container's path, an adapter's folder its alias.
    """
    if "/" not in text:
        return text
    model = str(CONTAINER_MODEL_DIR)
    own = (config.model_dir, *config.artifact_folders, config.hub_folder)
    names = {str(folder): model for folder in own if folder is not None}
    names |= (
        {str(config.adapter_cache_dir): "the adapter cache"} if config.adapter_cache_dir else {}
    )
    sources = {it.src.rstrip("/"): it.alias for it in adapters}
    names |= {source: f"adapter {alias}" for source, alias in sources.items()}
    known = [path for path in names if path.startswith("/") and path != "/"]
    folders = sorted(known, key=len)
    if not folders:
        return text
    whole = re.compile(f"{BEFORE}(?:{'|'.join(map(re.escape, reversed(folders)))}){AFTER}")
    return whole.sub(lambda found: names[found[0]], text)

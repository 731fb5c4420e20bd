"""The variables of AWS's vLLM images. Pure.

Source: their entry point, which makes an argument of vLLM of each SM_VLLM_* variable.
"""

from collections.abc import Collection, Mapping


def as_vllm(env: Mapping[str, str], listing: Collection[str]) -> dict[str, str]:
    """`env` without HF_MODEL_ID where the model folder holds a model and no variable names one.

    `listing` are the names in the model folder.
    """
    is_named = env.get("SM_VLLM_MODEL") or env.get("OPTION_MODEL_ID") or env.get("OPTION_MODEL")
    unread = "HF_MODEL_ID" if "config.json" in listing and not is_named else ""
    return {name: value for name, value in env.items() if name != unread}

"""The variables of a Text Generation Inference image as LMI's. Pure."""

from collections.abc import Mapping

# TGI's name -> LMI's, which wins where both are set.
NAMES: Mapping[str, str] = {
    "HF_MODEL_REVISION": "OPTION_REVISION",
    "REVISION": "OPTION_REVISION",
    "DTYPE": "OPTION_DTYPE",
    "QUANTIZE": "OPTION_QUANTIZE",
    "KV_CACHE_DTYPE": "OPTION_KV_CACHE_DTYPE",
    "NUM_SHARD": "OPTION_TENSOR_PARALLEL_DEGREE",
    "MAX_TOTAL_TOKENS": "OPTION_MAX_MODEL_LEN",
    "TRUST_REMOTE_CODE": "OPTION_TRUST_REMOTE_CODE",
    "ROPE_SCALING": "OPTION_ROPE_SCALING",
    "LORA_ADAPTERS": "OPTION_LORA_MODULES",
    "PAYLOAD_LIMIT": "SERVING_MAX_REQUEST_SIZE",
}
# Answers in lists, streams of events, and greedy unless a request samples.
MANNERS: Mapping[str, str] = {"OPTION_TGI_COMPAT": "true", "OPTION_ROLLING_BATCH": "lmi-dist"}


def as_lmi(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with LMI's variables for those of TGI."""
    named = {theirs: env[name] for name, theirs in NAMES.items() if env.get(name)}
    with_adapters = {"OPTION_ENABLE_LORA": "true"} if env.get("LORA_ADAPTERS") else {}
    return {**MANNERS, **with_adapters, **named, **env}

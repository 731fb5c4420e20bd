"""The variables of a Text Generation Inference image as LMI's. Pure.

Source: TGI's launcher arguments, and what SageMaker's entry point of those images sets.
"""

from collections.abc import Mapping

# TGI's name -> LMI's, which wins where both are set.
NAMES: Mapping[str, str] = {
    "HF_MODEL_REVISION": "OPTION_REVISION",
    "DTYPE": "OPTION_DTYPE",
    "QUANTIZE": "OPTION_QUANTIZE",
    "NUM_SHARD": "OPTION_TENSOR_PARALLEL_DEGREE",
    "MAX_TOTAL_TOKENS": "OPTION_MAX_MODEL_LEN",
}
# Answers in lists, streams of events, and greedy unless a request samples.
MANNERS: Mapping[str, str] = {"OPTION_TGI_COMPAT": "true", "OPTION_ROLLING_BATCH": "lmi-dist"}


def as_lmi(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with LMI's variables for those of TGI."""
    named = {theirs: env[name] for name, theirs in NAMES.items() if env.get(name)}
    return {**MANNERS, **named, **env}

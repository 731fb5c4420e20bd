"""Every option that LMI, vLLM and TGI know, and its treatment by our own engine and by vLLM.

    done              read, or checked to have a value that is done
    passed on         vLLM gets the value, once it has the right form
    refused           any value that asks for more ends the start
    no effect         accepted with a warning, since it cannot change an answer
    not in the table  a warning with similar names, or refused with option.strict_options=true

docs/llm-options.md is made from it. Variables of a TGI image that are LMI's options under another
name are in `options.TGI_NAMES`. Source of the others: TGI's launcher arguments, and the entry point
of SageMaker's images of TGI.
"""

from collections.abc import Mapping
from difflib import get_close_matches

from hostelry.containers.lmi.settings.option_rows import (
    LMI_OPTIONS,
    NO_SPECULATION,
    OWN_MEMORY,
    PROPERTIES,
    OptionRow,
    Rows,
    each,
    refused,
    without_effect,
)
from hostelry.containers.lmi.settings.options import ALIASES
from hostelry.containers.lmi.settings.passed_options import KERNELS
from hostelry.containers.lmi.settings.vllm_options import GATEWAY, VLLM_OPTIONS, WATCHING

TGI_VARIABLES: Rows = {
    **each(
        "MAX_INPUT_TOKENS MAX_INPUT_LENGTH",
        without_effect("MAX_TOTAL_TOKENS bounds prompt and answer together"),
    ),
    **each(
        "MAX_BEST_OF MAX_STOP_SEQUENCES MAX_TOP_N_TOKENS MAX_CLIENT_BATCH_SIZE",
        without_effect("requests have this server's own limits"),
    ),
    **each(
        "MAX_BATCH_TOTAL_TOKENS MAX_WAITING_TOKENS WAITING_SERVED_RATIO CUDA_MEMORY_FRACTION",
        without_effect(OWN_MEMORY),
    ),
    "MESSAGES_API_ENABLED": without_effect(
        "a body's members decide its schema: messages is always a chat", "true"
    ),
    "SPECULATE": without_effect(NO_SPECULATION, "0"),
    **each("CUDA_GRAPHS DISABLE_CUSTOM_KERNELS ATTENTION PREFIX_CACHING PREFILL_CHUNKING",
           without_effect(KERNELS, "0", "1", "true")),
    **each("VALIDATION_WORKERS SHARDED SHARD_UDS_PATH MASTER_ADDR MASTER_PORT "
           "GRACEFUL_TERMINATION_TIMEOUT",
           without_effect("NUM_SHARD alone divides a model, over ranks on one machine", "true")),
    **each("WEIGHTS_CACHE_OVERRIDE HUGGINGFACE_HUB_CACHE",
           without_effect("the operator's HF_HOME keeps downloads")),
    **each("JSON_OUTPUT OTLP_ENDPOINT OTLP_SERVICE_NAME USAGE_STATS PROMETHEUS_PORT",
           without_effect(WATCHING, "true", "on", "off", "no-stack")),
    **each("CORS_ALLOW_ORIGIN NGROK NGROK_AUTHTOKEN NGROK_EDGE", without_effect(GATEWAY)),
    "API_KEY": refused("left out: keys of clients are the gateway's"),
    **each("WATERMARK_GAMMA WATERMARK_DELTA",
           without_effect("a request that asks for a watermark is refused")),
    "ROPE_FACTOR": refused("left out: give ROPE_SCALING as a JSON object, with its factor"),
    "TOKENIZER_CONFIG_PATH": refused("left out: the model folder's tokenizer is used"),
    "DISABLE_GRAMMAR_SUPPORT": without_effect("structured output is by request"),
    "ENABLE_PREFILL_LOGPROBS": without_effect(
        "log-probabilities of a prompt are by request", "true"
    ),
    **each("HF_TASK MODEL_CACHE_ROOT ENDPOINT_SERVER_TIMEOUT MODEL_SERVER_TIMEOUT "
           "MODEL_SERVER_WORKERS",
           without_effect("this server does not read it. PREDICT_TIMEOUT limits answers",
                          "1", "text-generation")),
}  # fmt: skip
OPTIONS: Rows = {**LMI_OPTIONS, **VLLM_OPTIONS}
NAME_CHARACTERS = 64  # of an unknown name that is compared with known ones

# Endings of names whose values no message shows.
SECRETS = ("api_key", "hf_token", "authtoken", "keystore_pass")


def find_row(name: str) -> OptionRow | None:
    """The row of an option, or of a property if the name begins with a slash."""
    return PROPERTIES.get(name[1:]) if name.startswith("/") else OPTIONS.get(name)


def close_names(name: str) -> tuple[str, ...]:
    """Known names that look like `name`, the closest first."""
    known: Mapping[str, object] = PROPERTIES if name.startswith("/") else {**OPTIONS, **ALIASES}
    plain = name.removeprefix("/").lower()[:NAME_CHARACTERS]
    return tuple(get_close_matches(plain, known, n=3, cutoff=0.75))

"""Asks through litellm's SageMaker providers in the arguments, and prints the results as JSON."""

import json
import sys

import litellm

MESSAGES = [{"role": "user", "content": "hello"}]


def ask(provider: str, endpoint: str, component: str = "") -> dict[str, object]:
    """Get a greedy answer, whole and as a stream."""
    asked = {
        "model": f"{provider}/{endpoint}",
        "messages": MESSAGES,
        "max_tokens": 12,
        "temperature": 0.0,
        "aws_region_name": "us-east-1",
    }
    if provider == "sagemaker":
        asked["top_k"] = 1  # litellm changes a temperature of 0 to 0.01
    if component:
        asked["model_id"] = component
        if provider == "sagemaker_chat":
            asked["hf_model_name"] = "lmi"  # LMI 15 and later read `model`
    whole = litellm.completion(**asked)
    choices = [it.choices[0] for it in litellm.completion(**asked, stream=True) if it.choices]
    return {
        "text": whole.choices[0].message.content,
        "stream": "".join(it.delta.content or "" for it in choices),
        "finish": choices[-1].finish_reason,
        "tokens": whole.usage.completion_tokens,
    }


print(json.dumps({it: ask(*it.split("/")) for it in sys.argv[1:]}))

"""Asks an endpoint, the argument, through LlamaIndex's LLM for SageMaker, and prints the reply."""

import json
import sys
from types import ModuleType

# Its module imports two functions from the module for llama.cpp, which imports llama_cpp.
sys.modules["llama_cpp"] = ModuleType("llama_cpp")
sys.modules["llama_cpp"].Llama = None  # type: ignore[attr-defined]

from llama_index.llms.sagemaker_endpoint import SageMakerLLM  # noqa: E402

greedy = {"max_new_tokens": 12, "do_sample": False, "return_full_text": True}
llm = SageMakerLLM(endpoint_name=sys.argv[1], region_name="us-east-1", model_kwargs=greedy)
print(json.dumps(llm.complete("hello", formatted=True).text))

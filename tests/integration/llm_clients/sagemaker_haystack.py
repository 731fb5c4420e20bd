"""Asks an endpoint, the argument, through Haystack's SageMaker generator, and prints the reply."""

import json
import sys

from haystack_integrations.components.generators.amazon_sagemaker import SagemakerGenerator

greedy = {"max_new_tokens": 12, "do_sample": False}
generator = SagemakerGenerator(
    model=sys.argv[1], generation_kwargs=greedy, aws_custom_attributes={"accept_eula": True}
)
print(json.dumps(generator.run("hello")["replies"][0]))

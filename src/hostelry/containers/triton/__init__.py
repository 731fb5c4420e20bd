"""NVIDIA Triton behind SageMaker's container contract: a front, a tritonserver for each model."""

"""SageMaker's control-plane operations."""

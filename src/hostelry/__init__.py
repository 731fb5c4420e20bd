"""Hostelry: self-hosted model hosting that speaks Amazon SageMaker's inference APIs."""

__version__ = "0.1.0"

"""Runtimes made: Python environments of other engines and frameworks, beside the platform's own."""

"""Installation of runtimes: Python environments of other engines and of frameworks."""

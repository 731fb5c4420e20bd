"""AI benchmark jobs: an LLM under a described workload, and its results in S3."""

"""The LLM model server: LMI's contract over the engine."""

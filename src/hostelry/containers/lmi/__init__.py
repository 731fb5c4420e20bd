"""The LLM model server: LMI's container contract (routes, schemas, settings) over the engine."""

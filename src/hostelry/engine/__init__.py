"""The multi-LoRA LLM engine: knows tokens, not AWS; usable alone as a library."""

"""Tool calls and reasoning in a model's text: how they are written, bounded and read."""

"""An author's own code: `model.py` in separate processes, never in the server or the engine."""

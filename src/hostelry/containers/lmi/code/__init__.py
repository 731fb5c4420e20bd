"""An author's own code: `model.py` in processes of its own, never the server's or the engine's."""

"""vLLM as the second engine, in a process of its own interpreter behind our messages.

In the server: `choice`, `launch`. In the engine process: all other modules.
"""

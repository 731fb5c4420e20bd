"""vLLM as the second engine, in a process with its own interpreter behind our messages.

The server imports `launch`, the engine process all other modules.
"""

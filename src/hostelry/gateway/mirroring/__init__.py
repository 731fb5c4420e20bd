"""The connection of gateway workers to the mirror process: turns, messages, and both ends."""

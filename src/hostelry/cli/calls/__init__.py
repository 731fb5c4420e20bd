"""Calls of models by people: chat, and one invocation."""

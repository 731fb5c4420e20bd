"""Calls of models from the command line: chats, and single invocations."""

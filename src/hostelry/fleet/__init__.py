"""Instances and their copies: Fleet, Agent and Launcher; the only code that starts processes."""

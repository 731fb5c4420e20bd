"""Instances and their copies: Fleet, Agent and Launcher. Only this package starts model servers."""

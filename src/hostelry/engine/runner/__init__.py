"""Execution of a plan: its integers as one ForwardBatch, graphs, and several ranks."""

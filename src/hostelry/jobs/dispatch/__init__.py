"""Runs queued requests: sends input objects to copies, writes output objects, and notifies."""

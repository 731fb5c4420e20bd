"""Fetchers of adapters' files from remote places."""

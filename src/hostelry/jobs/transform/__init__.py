"""Runs transform jobs: lists their objects, sends records to copies, writes one output each."""

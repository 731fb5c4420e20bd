"""Runs queued requests: object in, copy, object out; delivers notifications, measures."""

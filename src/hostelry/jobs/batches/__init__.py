"""Batches of OpenAI's API: files of requests, run against ready copies of many models."""

"""Architectures, one file each, and readers of Hugging Face model folders."""

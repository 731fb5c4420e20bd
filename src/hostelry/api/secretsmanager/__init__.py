"""Secrets Manager: values encrypted by KMS, and their versions."""

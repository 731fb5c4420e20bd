"""The permissions that invocations and calls of the S3 port need. Pure."""

"""The S3 proxy, between the S3 port and the object store."""

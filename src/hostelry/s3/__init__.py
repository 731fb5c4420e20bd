"""The S3 proxy: what stands between the S3 port and the object store."""

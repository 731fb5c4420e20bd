"""Models' and adapters' files: fetched from S3 once per instance, unpacked safely, kept bounded."""

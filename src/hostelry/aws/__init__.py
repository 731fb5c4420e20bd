"""AWS protocols: parsing and serializing by botocore's models; SigV4; event streams."""

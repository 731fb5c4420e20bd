"""AWS protocols by botocore's models, SigV4 and event streams."""

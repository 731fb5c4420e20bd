"""The wire: botocore's own service models drive parsing and serializing; SigV4; event streams."""

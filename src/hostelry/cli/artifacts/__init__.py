"""Local files as objects in S3: found safely, named by their content, and sent once."""

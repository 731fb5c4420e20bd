"""Files of this machine as objects in S3: found safely, named by their content, sent once."""

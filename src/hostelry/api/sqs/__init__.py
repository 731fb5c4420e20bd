"""Amazon SQS: standard queues and their messages."""

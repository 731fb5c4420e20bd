"""Amazon SNS: topics, subscriptions, messages."""

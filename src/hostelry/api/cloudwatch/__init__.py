"""CloudWatch's operations: alarms and metrics."""

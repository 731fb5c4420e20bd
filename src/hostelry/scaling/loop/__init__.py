"""The loop around the decisions: metrics, alarms, policies, capacity, receipts."""

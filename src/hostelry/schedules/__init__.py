"""Schedules that call operations at their times (EventBridge Scheduler)."""

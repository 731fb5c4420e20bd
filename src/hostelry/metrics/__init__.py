"""Time series within a memory limit, queried by period and statistic."""

"""Time-bucketed series: what was measured, kept within bounds, asked by period and statistic."""

"""`hostelry dashboards`: files for other monitoring systems, generated from the metrics."""

"""`hostelry dashboards`: what other monitoring systems need, made from the metrics that exist."""

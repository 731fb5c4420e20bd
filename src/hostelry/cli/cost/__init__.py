"""`hostelry cost`: what endpoints, models and idle time cost."""

"""Programs under `hostelry exec`: what stands between them and AWS, and what they called."""

"""Application Auto Scaling's operations."""

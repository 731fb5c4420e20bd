"""The drill `rollout`: processes killed in each step of an endpoint's update, under load."""

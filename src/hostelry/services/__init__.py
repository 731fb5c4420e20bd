"""The process of each service: wires its classes, reads its environment, and serves."""

"""The model server of graphs: steps carried out in parallel against other models."""

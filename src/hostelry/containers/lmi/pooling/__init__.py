"""Embeddings, scores and classes: bodies to texts, texts to vectors, vectors to answers."""

"""Prices, and how the cost of instances is divided over models. Pure."""

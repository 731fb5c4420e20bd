"""Graphs of model calls: the document, its checked plan, and the steps that follow. Pure."""

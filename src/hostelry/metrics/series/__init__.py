"""Series in memory: samples in, statistics of periods out."""

"""Algorithms: each says only what it takes from a conditional."""

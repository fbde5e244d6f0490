"""Distributions and the random numbers they are drawn with."""

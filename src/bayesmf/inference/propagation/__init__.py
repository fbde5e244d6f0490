"""Posterior propagation: blocks of the ratings sampled apart."""

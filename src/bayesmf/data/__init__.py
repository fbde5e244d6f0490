"""Ratings: where they come from, how they are checked, described, split and generated."""

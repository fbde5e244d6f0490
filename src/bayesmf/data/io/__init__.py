"""Ratings from files and to files: every read and write of data sets."""

"""The one sweep, and what an algorithm takes from each conditional."""

"""What a fit shows of itself and of its data."""

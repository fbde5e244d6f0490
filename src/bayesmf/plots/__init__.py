"""Plain arrays drawn on matplotlib axes, in one look."""

"""Which model to take: comparison, cross-validation and tuning."""

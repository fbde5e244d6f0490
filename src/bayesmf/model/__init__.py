"""The model family: a variant is a value, and every conditional is written once."""

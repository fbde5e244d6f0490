"""Mean-field variational inference with its lower bound."""

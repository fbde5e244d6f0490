"""What a fit can do: predict, recommend, explain, fold in, evaluate, and be saved."""

"""A fitted model behind HTTP: a JSON service, and the explorer, a page that uses it."""

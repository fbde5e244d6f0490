"""What one looks at in a fit: names, neighbours, a map, lists of items."""

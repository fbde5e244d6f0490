"""What a fit shows of itself: names, neighbours, lists, how good it is, and pictures."""

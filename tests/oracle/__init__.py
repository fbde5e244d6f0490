"""What the tests compare with: the joint density, readable conditionals, naive twins."""

"""A likelihood, a design and an effect written outside the package, one short file each."""

"""Random numbers as a function of their counter: (seed, chain, sweep, parameter, row)."""

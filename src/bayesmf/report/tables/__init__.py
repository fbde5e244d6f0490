"""The tables of the report, from results alone."""

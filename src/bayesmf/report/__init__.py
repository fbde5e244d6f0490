"""What was found, as one page to read and tables to take away."""

"""MAP estimation in the paper's three stages."""

"""How good a fit is, and how far its chains can be trusted."""

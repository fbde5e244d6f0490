"""The literature's own protocols, with our figures beside the published ones."""

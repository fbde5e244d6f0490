"""The engine on Ray: workers on any number of machines."""

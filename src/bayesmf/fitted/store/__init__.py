"""How draws and fits are kept: in memory, in folders, in files."""

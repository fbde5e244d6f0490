"""Commands that are killed: which, how, and what is looked at afterwards."""

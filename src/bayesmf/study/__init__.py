"""The paper's experiments as data: specs in, a results folder out."""

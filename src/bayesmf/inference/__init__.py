"""The engine protocol, the loop and its checkpoints; Gibbs sampling, variational inference, MAP."""

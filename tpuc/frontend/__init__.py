"""From a PyTorch module to StableHLO."""

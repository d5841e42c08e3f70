"""The passes over StableHLO, and their order."""

"""From StableHLO to executables."""

"""How each operator becomes StableHLO."""

"""What tpuc's programs and its runtime cost, side by side with their peers, and how much of PyTorch is covered."""

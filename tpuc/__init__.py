"""Compile PyTorch programs ahead of time into TPU executables."""

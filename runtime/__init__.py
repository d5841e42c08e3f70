"""Load an artifact and run it; needs neither PyTorch nor a compiler."""

"""Programs written by hand in JAX, as its users write them for a TPU: what a compiled PyTorch program is held against.

Each module has a `program` function, which returns the JAX function and the shapes that it is compiled for. The
tests compare each with PyTorch on small sizes.
"""

"""Makes the benchmarks importable, which are run from the repository's root and not installed."""

import sys
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[2]))
# Otherwise JAX would look for a TPU, as libtpu is installed.
jax.config.update("jax_platforms", "cpu")

"""A PyTorch module through torchax, as it comes, to a JAX function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from tpuc.fake import fake_weights

#: Overloads for named tensors, which PyTorch 2.13 has no more and torchax 0.0.13 has lists of.
_GONE = (
    "all.dimname",
    "all.dimname_out",
    "index_add.dimname",
    "index_copy.dimname",
    "index_copy_.dimname",
    "index_fill.Dimname_Scalar",
    "index_fill.Dimname_Tensor",
    "index_fill_.Dimname_Scalar",
    "index_fill_.Dimname_Tensor",
    "norm.names_ScalarOpt_dim",
    "norm.names_ScalarOpt_dim_dtype",
    "norm.names_dtype_out",
    "norm.names_out",
    "prod.dim_Dimname",
    "std.correction_names",
    "std.correction_names_out",
    "std.names_dim",
    "std.names_out",
    "std_mean.correction_names",
    "std_mean.names_dim",
    "unbind.Dimname",
)
_library = torch.library.Library("aten", "FRAGMENT")


def to_jax(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns a module as a JAX function of its weights and inputs, and their shapes. Its weights lose their values."""
    # Imported here: it changes settings of PyTorch, which only those shall have who ask for it.
    if not hasattr(torch.ops.aten.prod, "dim_Dimname"):
        for name in _GONE:
            _library.define(f"{name}(Tensor self) -> Tensor")  # To be in a list they only have to exist.
    from torchax import default_env
    from torchax.export import exported_program_to_jax

    default_env()  # Loads the lowerings.
    with torch.no_grad(), fake_weights(module):
        program = torch.export.export(module, (), dict(inputs))
        _, states, function = exported_program_to_jax(program, export_raw=True)
    return function, (list(map(_shape_of, states)), tuple(map(_shape_of, inputs.values())))


def _shape_of(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(tensor.shape), jnp.dtype(str(tensor.dtype).removeprefix("torch.")))

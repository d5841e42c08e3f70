"""The calls that torch-mlir converts itself.

It is fast there and right there: arithmetic on tensors of one dtype, and views. `tests/lowerings/test_native.py`
runs each of these operators both ways and compares. Everything that it gets wrong, or leaves in a poor form
(see the `why` of each lowering), is kept from it.
"""

from __future__ import annotations

import torch

from tpuc.lowerings.call import OpCall, TensorMeta

_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64})
_FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})

#: Elementwise on tensors of one dtype, of at least one dimension.
ARITHMETIC = frozenset({"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor"})
#: The same, floats only.
FLOAT_ARITHMETIC = frozenset(
    {
        "aten.cos.default",
        "aten.div.Tensor",
        "aten.exp.default",
        "aten.log.default",
        "aten.neg.default",
        "aten.rsqrt.default",
        "aten.sigmoid.default",
        "aten.sin.default",
        "aten.sqrt.default",
        "aten.tanh.default",
    }
)
#: Views and copies, of any dtype that is listed.
VIEWS = frozenset(
    {
        "aten.clone.default",
        "aten.permute.default",
        "aten.transpose.int",
        "aten.unsqueeze.default",
        "aten.view.default",
    }
)
NATIVE = ARITHMETIC | FLOAT_ARITHMETIC | VIEWS


def is_native(call: OpCall) -> bool:
    """Whether torch-mlir converts this call itself."""
    name = call.operator
    if name not in NATIVE or not isinstance(call.results, TensorMeta):
        return False
    tensors = (*call.tensors, call.results)
    if not all(meta.shape and 0 not in meta.shape for meta in tensors):
        return False
    dtypes = {meta.dtype for meta in tensors}
    if len(dtypes) > 1 or not dtypes <= (_FLOATS if name in FLOAT_ARITHMETIC else _DTYPES):
        return False
    if name in VIEWS:
        return True
    # A number among the operands would pass through f64; `alpha` would too.
    return not call.kwargs and len(call.tensors) == len(call.args)

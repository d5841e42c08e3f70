"""ResNet-50 by hand in JAX, channels last, with batch norm as it is trained or folded into the convolutions.

Reference: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (CVPR 2016), with the stride on the
3x3 convolution ("v1.5").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, ShapeDtypeStruct
from jax.typing import DTypeLike

#: A tree of arrays, or of their shapes.
Params = dict[str, Any]

#: Width of the 3x3 convolutions, blocks, and stride of the first block.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
_CLASSES = 1000
_EPSILON = 1e-5


def program(
    *, batch: int, dtype: DTypeLike, folded: bool, size: int = 224
) -> tuple[Callable[..., Array], tuple[Any, ...]]:
    """Returns the classifier of pictures, and the shapes of its arguments.

    Args:
        batch: Pictures at a time.
        dtype: Of pictures and parameters.
        folded: Whether batch norm is folded into the convolutions, which then have a bias.
        size: Height and width of a picture.
    """
    pictures = ShapeDtypeStruct((batch, 3, size, size), dtype)
    return classify, (shapes(dtype, folded=folded), pictures)


def shapes(dtype: DTypeLike, *, folded: bool) -> Params:
    """The shapes of the parameters."""
    convolution = partial(_convolution_shapes, dtype=dtype, folded=folded)
    blocks = []
    channels = 64
    for width, count, _ in STAGES:
        for index in range(count):
            block = {
                "reduce": convolution(channels, width, 1),
                "middle": convolution(width, width, 3),
                "expand": convolution(width, 4 * width, 1),
            }
            if index == 0:
                block["shortcut"] = convolution(channels, 4 * width, 1)
            blocks.append(block)
            channels = 4 * width
    return {
        "stem": convolution(3, 64, 7),
        "blocks": blocks,
        "head": {
            "weight": ShapeDtypeStruct((channels, _CLASSES), dtype),
            "bias": ShapeDtypeStruct((_CLASSES,), dtype),
        },
    }


def _convolution_shapes(inputs: int, outputs: int, window: int, *, dtype: DTypeLike, folded: bool) -> Params:
    weight = ShapeDtypeStruct((window, window, inputs, outputs), dtype)
    names = ("bias",) if folded else ("scale", "bias", "mean", "variance")
    return {"weight": weight, **{name: ShapeDtypeStruct((outputs,), dtype) for name in names}}


def classify(params: Params, pictures: Array) -> Array:
    """Classifies pictures: [batch, 3, height, width] -> logits, [batch, 1000]."""
    x = jnp.transpose(pictures, (0, 2, 3, 1))
    x = jax.nn.relu(_convolution(x, params["stem"], stride=2))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    strides = [stride if index == 0 else 1 for _, count, stride in STAGES for index in range(count)]
    for block, stride in zip(params["blocks"], strides, strict=True):
        x = _block(x, block, stride)
    return x.mean((1, 2)) @ params["head"]["weight"] + params["head"]["bias"]


def _block(x: Array, params: Params, stride: int) -> Array:
    shortcut = _convolution(x, params["shortcut"], stride=stride) if "shortcut" in params else x
    y = jax.nn.relu(_convolution(x, params["reduce"]))
    y = jax.nn.relu(_convolution(y, params["middle"], stride=stride))
    return jax.nn.relu(_convolution(y, params["expand"]) + shortcut)


def _convolution(x: Array, params: Params, *, stride: int = 1) -> Array:
    """A convolution and its batch norm, in inference mode."""
    weight = params["weight"]
    padding = weight.shape[0] // 2
    y = jax.lax.conv_general_dilated(
        x, weight, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    if "mean" not in params:
        return y + params["bias"]
    return (y - params["mean"]) * (jax.lax.rsqrt(params["variance"] + _EPSILON) * params["scale"]) + params["bias"]

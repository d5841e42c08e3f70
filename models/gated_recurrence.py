"""A language model of gated linear recurrences, with a custom operator.

Reference: De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language Models"
(2024), section 2.4: the recurrent block and its RG-LRU. Random weights, a small configuration.

The recurrence is the operator `griffin::linear_recurrence`. PyTorch computes it step by step. For tpuc the file brings
two lowerings: a parallel scan in JAX, and a Pallas kernel that keeps the state in VMEM, for TPUs.

Input: `tokens=i64[1,512]`. Output: logits of the next token, `f32[1,512,1024]`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from torch import Tensor, nn
from torch.nn import functional as F

import tpuc


@torch.library.custom_op("griffin::linear_recurrence", mutates_args=())
def linear_recurrence(decay: Tensor, x: Tensor) -> Tensor:
    """`h[t] = decay[t] * h[t - 1] + x[t]`, from zero, along dimension 1 of [N, T, C]."""
    h, state = torch.empty_like(x), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        state = decay[:, t] * state + x[:, t]
        h[:, t] = state
    return h


@linear_recurrence.register_fake
def _(decay: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@tpuc.lowering("griffin::linear_recurrence")
def scan(decay: jax.Array, x: jax.Array) -> jax.Array:
    """The recurrence as a scan over an associative operation: O(log T) steps."""

    def compose(first: tuple[jax.Array, jax.Array], then: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return first[0] * then[0], first[1] * then[0] + then[1]

    return lax.associative_scan(compose, (decay, x), axis=1)[1]


@tpuc.lowering("griffin::linear_recurrence", platform="tpu")
def scan_kernel(decay: jax.Array, x: jax.Array, *, interpret: bool = False) -> jax.Array:
    """The recurrence as a kernel: one pass over memory, blocks of time in order, the state in VMEM."""
    batch, length, channels = x.shape
    steps = next(size for size in (128, 64, 32, 16, 8, length) if length % size == 0)
    block = pl.BlockSpec((1, steps, channels), lambda n, t: (n, t, 0))
    return pl.pallas_call(
        _recur,
        grid=(batch, length // steps),
        in_specs=[block, block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((1, channels), x.dtype)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(decay, x)


def _recur(decay: Any, x: Any, h: Any, state: Any) -> None:
    """One block: references to the decay, the input and the result, [1, steps, C], and to the state, [1, C]."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        state[...] = jnp.zeros_like(state)

    def step(t: jax.Array, carried: jax.Array) -> jax.Array:
        row = pl.ds(t, 1)
        carried = decay[0, row, :] * carried + x[0, row, :]
        h[0, row, :] = carried
        return carried

    state[...] = lax.fori_loop(0, x.shape[1], step, state[...])


class RGLRU(nn.Module):
    """The real-gated linear recurrent unit: [N, T, C] -> [N, T, C]."""

    #: The constant c of the paper.
    SHARPNESS = 8.0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_gate = nn.Linear(width, width)
        self.recurrence_gate = nn.Linear(width, width)
        # As the paper starts it: decays, to the power c, between 0.9 and 0.999.
        decay = torch.empty(width).uniform_(0.9, 0.999) ** (1 / self.SHARPNESS)
        self.decay_logit = nn.Parameter(torch.logit(decay))

    def forward(self, x: Tensor) -> Tensor:
        """Lets each channel decay at a rate that the input decides."""
        log_decay = self.SHARPNESS * torch.sigmoid(self.recurrence_gate(x)) * F.logsigmoid(self.decay_logit)
        gated = torch.sigmoid(self.input_gate(x)) * x
        return linear_recurrence(torch.exp(log_decay), torch.sqrt(-torch.expm1(2 * log_decay)) * gated)


class RecurrentBlock(nn.Module):
    """A short causal convolution and the recurrent unit, gated by a GeLU branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.gate = nn.Linear(width, width)
        self.input = nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.recurrence = RGLRU(width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Adds what the block computes to its input: [N, T, C] -> [N, T, C]."""
        y = self.norm(x)
        mixed = self.conv(self.input(y).mT)[..., : x.shape[1]].mT
        return x + self.output(F.gelu(self.gate(y)) * self.recurrence(mixed))


class GatedMLP(nn.Module):
    """A feed-forward layer with a GeLU gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.gate = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Adds what the layer computes to its input: [N, T, C] -> [N, T, C]."""
        y = self.norm(x)
        return x + self.down(F.gelu(self.gate(y)) * self.up(y))


class GatedRecurrence(nn.Module):
    """Layers of a recurrent block and a gated MLP, over tokens."""

    def __init__(self, vocabulary: int = 1024, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(
            *(module for _ in range(layers) for module in (RecurrentBlock(width), GatedMLP(width)))
        )
        self.norm = nn.RMSNorm(width, eps=1e-6)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores the next token at each place: i64[N, T] -> f32[N, T, vocabulary]."""
        return self.norm(self.layers(self.embedding(tokens))) @ self.embedding.weight.mT


def model() -> nn.Module:
    """Makes the network with random weights."""
    torch.manual_seed(0)
    return GatedRecurrence()


def example_inputs() -> tuple[Tensor]:
    """A line of random tokens."""
    return (torch.randint(0, 1024, (1, 512), generator=torch.Generator().manual_seed(1)),)

"""Whole models at sizes drawn at random, with padding out of range or NaN, against eager."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from any_size import check_sizes, compile_any_size
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

from tpuc.loader import load_model

CALLS = 50
TOKENS = "i64[batch,seq]"
LENGTHS = ["batch=1..4", "seq=1..64"]


class Masked(nn.Module):
    """A model of transformers, called with tokens and a mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden


class Bare(Masked):
    """The same, called with tokens only."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        hidden: torch.Tensor = self.model(input_ids=input_ids).last_hidden_state
        return hidden


class Causal(Masked):
    """The same, without a cache of keys and values."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        hidden: torch.Tensor = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
        return hidden


class Encoder(nn.Module):
    """An encoder of speech as in Whisper: two convolutions over time, of which one halves it, and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 16, 3, padding=1)
        self.second = nn.Conv1d(16, 16, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(64, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.second(F.gelu(self.first(mel)))).transpose(1, 2)
        output: torch.Tensor = self.layer(x + self.positions[: x.shape[1]])
        return output


class Convolutional(nn.Module):
    """A network of convolutions and pooling for pictures of any height and width, with one score for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """A network that halves pictures twice, doubles them twice, and joins what it had on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.Conv2d(16, 8, 3, padding=1)
        self.outward = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.inward(x)
        second = F.silu(self.norm(self.down(first)))
        third = F.silu(self.norm(self.down(second)))
        up = self.up(torch.cat([F.interpolate(third, scale_factor=2), second], 1))
        output: torch.Tensor = self.outward(torch.cat([F.interpolate(up, scale_factor=2), first], 1))
        return output


def zoo(name: str) -> nn.Module:
    loaded = load_model(f"models/{name}.py")
    assert isinstance(loaded.program, nn.Module)
    return loaded.program


def minilm() -> nn.Module:
    return zoo("minilm").get_submodule("encoder")


def bert() -> nn.Module:
    return BertModel(BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128))


def llama() -> nn.Module:
    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128
    )
    return LlamaModel(config)


#: Name, how the module is made, inputs, sizes, tolerance.
MODELS: list[tuple[str, Callable[[], nn.Module], list[str], list[str], float]] = [
    ("minilm", lambda: Masked(minilm()), [TOKENS, TOKENS], LENGTHS, 1e-4),
    ("minilm without a mask", lambda: Bare(minilm()), [TOKENS], LENGTHS, 1e-4),
    ("bert", lambda: Masked(bert()), [TOKENS, TOKENS], LENGTHS, 1e-4),
    ("llama", lambda: Causal(llama()), [TOKENS], LENGTHS, 1e-4),
    ("whisper", Encoder, ["f32[batch,8,time]"], ["batch=1..3", "time=3..100"], 1e-4),
    (
        "convolutional",
        Convolutional,
        ["f32[batch,3,height,width]"],
        ["batch=1..2", "height=2..21", "width=2..18"],
        1e-4,
    ),
    ("unet", UNet, ["f32[1,3,8*h,8*w]"], ["h=1..4", "w=1..5"], 1e-4),
    ("resnet50", lambda: zoo("resnet50"), ["f32[batch,3,64,64]"], ["batch=1..4"], 1e-3),
    ("efficientnet", lambda: zoo("efficientnet_lite0"), ["f32[batch,3,64,64]"], ["batch=1..4"], 1e-3),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "inputs", "sizes", "tolerance"), [pytest.param(*rest, id=name) for name, *rest in MODELS]
)
def test_sizes_drawn_at_random(
    make: Callable[[], nn.Module], inputs: list[str], sizes: list[str], tolerance: float
) -> None:
    torch.manual_seed(0)
    compiled = compile_any_size(make().eval(), inputs, sizes)
    draw = random.Random(0)
    drawn = [{each.name: draw.randint(each.minimum, each.maximum) for each in compiled.ranges} for _ in range(CALLS)]
    check_sizes(compiled, drawn, tolerance=tolerance)

"""The programs written by hand in JAX compute what PyTorch does, so that they may be compared with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.experimental.pallas import tpu as pltpu
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from benchmarks.native import bert, llama, resnet50
from tpuc.agreement import relative_error
from tpuc.loader import load_model

_RESNET50 = Path(__file__).parents[2] / "models" / "resnet50.py"

State = Mapping[str, torch.Tensor]


def _check(function: Any, shapes: Any, arguments: tuple[Any, ...], expected: tuple[torch.Tensor, ...]) -> None:
    """Runs a JAX function on arguments of the shapes that it says it takes, and compares."""
    given = jax.tree.map(lambda array: (array.shape, array.dtype), arguments)
    assert given == jax.tree.map(lambda spec: (spec.shape, spec.dtype), shapes)
    results = jax.tree.leaves(jax.jit(function)(*arguments))
    for result, tensor in zip(results, expected, strict=True):
        assert result.shape == tuple(tensor.shape)
        assert relative_error(np.asarray(result), tensor.numpy()) < 1e-5


def _linear(state: State, name: str) -> dict[str, np.ndarray]:
    return {"weight": state[f"{name}.weight"].numpy().T, "bias": state[f"{name}.bias"].numpy()}


def _norm(state: State, name: str) -> dict[str, np.ndarray]:
    return {"scale": state[f"{name}.weight"].numpy(), "bias": state[f"{name}.bias"].numpy()}


def _randomize(module: torch.nn.Module) -> State:
    """Gives every parameter and statistic a value of its own: fresh ones are zeros and ones in many places."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point() and tensor.ndim == 1:
            low = 0.5 if "var" in name or "weight" in name else -0.5
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + low)
    return module.state_dict()


def test_bert() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    module = BertModel(BertConfig(vocab_size=50, max_position_embeddings=16, **sizes)).eval()
    state = _randomize(module)
    ids = torch.randint(0, 50, (2, 8))
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    with torch.no_grad():
        expected = module(input_ids=ids, attention_mask=mask)

    def layer(name: str) -> dict[str, Any]:
        attention = f"{name}.attention"
        return {
            **{part: _linear(state, f"{attention}.self.{part}") for part in ("query", "key", "value")},
            "output": _linear(state, f"{attention}.output.dense"),
            "attention_norm": _norm(state, f"{attention}.output.LayerNorm"),
            "up": _linear(state, f"{name}.intermediate.dense"),
            "down": _linear(state, f"{name}.output.dense"),
            "norm": _norm(state, f"{name}.output.LayerNorm"),
        }

    params = {
        "words": state["embeddings.word_embeddings.weight"].numpy(),
        "positions": state["embeddings.position_embeddings.weight"].numpy(),
        "types": state["embeddings.token_type_embeddings.weight"].numpy(),
        "norm": _norm(state, "embeddings.LayerNorm"),
        "layers": [layer(f"encoder.layer.{index}") for index in range(2)],
        "pooler": _linear(state, "pooler.dense"),
    }
    config = bert.BertConfig(width=32, layers=2, heads=4, inner=64, vocabulary=50, positions=16)
    function, shapes = bert.program(config, batch=2, tokens=8, dtype=jnp.float32)
    arguments = (params, ids.numpy().astype(np.int32), mask.numpy().astype(np.int32))
    _check(function, shapes, arguments, (expected.last_hidden_state, expected.pooler_output))


def test_llama() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    torch.manual_seed(0)
    module = LlamaForCausalLM(LlamaConfig(vocab_size=50, use_cache=False, **sizes)).eval()
    state = _randomize(module)
    ids = torch.randint(0, 50, (2, 8))
    with torch.no_grad():
        expected = module(input_ids=ids).logits

    def transposed(name: str) -> np.ndarray:
        return state[f"{name}.weight"].numpy().T

    def layer(name: str) -> dict[str, np.ndarray]:
        return {
            "attention_norm": state[f"{name}.input_layernorm.weight"].numpy(),
            "query": transposed(f"{name}.self_attn.q_proj"),
            "key": transposed(f"{name}.self_attn.k_proj"),
            "value": transposed(f"{name}.self_attn.v_proj"),
            "output": transposed(f"{name}.self_attn.o_proj"),
            "norm": state[f"{name}.post_attention_layernorm.weight"].numpy(),
            "gate": transposed(f"{name}.mlp.gate_proj"),
            "up": transposed(f"{name}.mlp.up_proj"),
            "down": transposed(f"{name}.mlp.down_proj"),
        }

    params = {
        "words": state["model.embed_tokens.weight"].numpy(),
        "layers": [layer(f"model.layers.{index}") for index in range(2)],
        "norm": state["model.norm.weight"].numpy(),
        "head": transposed("lm_head"),
    }
    config = llama.LlamaConfig(width=32, layers=2, heads=4, inner=48, vocabulary=50)
    arguments = (params, ids.numpy().astype(np.int32))
    function, shapes = llama.program(config, batch=2, tokens=8, dtype=jnp.float32)
    _check(function, shapes, arguments, (expected,))
    function, shapes = llama.program(config, batch=2, tokens=8, dtype=jnp.float32, flash=True)
    with pltpu.force_tpu_interpret_mode():
        _check(function, shapes, arguments, (expected,))


def test_resnet50() -> None:
    module = load_model(str(_RESNET50)).program
    assert isinstance(module, torch.nn.Module)
    state = _randomize(module)
    pictures = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = module(pictures)
    for folded in (False, True):
        function, shapes = resnet50.program(batch=2, dtype=jnp.float32, folded=folded, size=64)
        _check(function, shapes, (_resnet_params(state, folded=folded), pictures.numpy()), (expected,))


def _resnet_params(state: State, *, folded: bool) -> dict[str, Any]:
    def convolution(weight_name: str, norm_name: str) -> dict[str, np.ndarray]:
        weight = state[f"{weight_name}.weight"].numpy().transpose(2, 3, 1, 0)
        scale, bias, mean, variance = (
            state[f"{norm_name}.{part}"].numpy() for part in ("weight", "bias", "running_mean", "running_var")
        )
        if not folded:
            return {"weight": weight, "scale": scale, "bias": bias, "mean": mean, "variance": variance}
        factor = scale / np.sqrt(variance + 1e-5)
        return {"weight": weight * factor, "bias": bias - mean * factor}

    blocks = []
    for stage, (_, count, _) in enumerate(resnet50.STAGES):
        for index in range(count):
            name = f"stages.{stage}.{index}"
            block = {
                part: convolution(f"{name}.conv{number}", f"{name}.bn{number}")
                for number, part in enumerate(("reduce", "middle", "expand"), start=1)
            }
            if index == 0:
                block["shortcut"] = convolution(f"{name}.downsample.0", f"{name}.downsample.1")
            blocks.append(block)
    return {"stem": convolution("stem.0", "stem.1"), "blocks": blocks, "head": _linear(state, "fc")}

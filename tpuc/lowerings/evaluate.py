"""Evaluates operators, and graphs of them, on JAX arrays through the registry.

This is what a body is traced from: `evaluate_call` for one operator, `evaluate_graph` for the decomposition of one
that has no lowering of its own, or for the branches and loops of a higher-order operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tpuc.lowerings.call import OpCall, TensorMeta, operator_name
from tpuc.lowerings.dtypes import computation_dtype, is_array, to_jax, to_torch
from tpuc.lowerings.registry import REGISTRY, Lowering

#: The signatures of the calls whose decompositions are being evaluated, outermost first.
_DECOMPOSING: ContextVar[tuple[str, ...]] = ContextVar("_DECOMPOSING", default=())


class MissingLoweringError(Exception):
    """An operator has neither a lowering nor a decomposition.

    Attributes:
        operator: Its name.
        reason: Why, in words.
    """

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"{operator}: {reason}")
        self.operator = operator
        self.reason = reason


class LoweringMismatchError(Exception):
    """A lowering's result has another shape than PyTorch says: a defect of the lowering."""


def evaluate_call(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], expected: Any) -> Any:
    """Evaluates one operator.

    Args:
        target: The operator.
        args: Positional arguments: JAX arrays and Python values.
        kwargs: Keyword arguments, likewise.
        expected: The results' structure, with a `TensorMeta` for each tensor.

    Returns:
        JAX arrays in the structure of `expected`, with its shapes and dtypes.

    Raises:
        MissingLoweringError: The operator cannot be lowered.
        LoweringMismatchError: A lowering returned another shape than `expected` says.
    """
    name = operator_name(target)
    found = REGISTRY.get(name)
    if found is None:
        result = _decomposed(target, args, kwargs)
    else:
        args, kwargs = _promote(found, args, kwargs)
        result = found.function(*args, **kwargs)
    return _conform(name, result, expected)


def evaluate_graph(graph: torch.fx.Graph, inputs: Sequence[Any]) -> Any:
    """Evaluates a functional graph of operators.

    Args:
        graph: A graph whose call nodes have a fake tensor (or several) as `meta["val"]`.
        inputs: A JAX array or Python value for each placeholder.

    Returns:
        What the graph's output node holds, with JAX arrays for tensors.
    """
    values: dict[torch.fx.Node, Any] = {}
    rest = iter(inputs)
    for node in graph.nodes:
        match node.op:
            case "placeholder":
                values[node] = next(rest)
            case "get_attr":
                values[node] = _attribute(graph, node)
            case "call_function":
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                if node.target is operator.getitem:
                    values[node] = args[0][args[1]]
                else:
                    values[node] = evaluate_call(node.target, args, kwargs, expected_of(node.meta["val"]))
            case "output":
                return torch.fx.map_arg(node.args[0], values.__getitem__)
    raise AssertionError("a graph without an output")


def expected_of(value: Any) -> Any:
    """Turns the fake tensors of a result into `TensorMeta`."""
    return pytree.tree_map_only(torch.Tensor, TensorMeta.of, value)


def decomposition_of(target: Callable[..., Any]) -> Callable[..., Any] | None:
    """Returns PyTorch's decomposition of an operator, or None.

    A composite operator's own kernel comes first: what is in PyTorch's table may have another signature. A primitive
    of the table's decompositions stands for an operator of ATen.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return target.decompose
    rule: Callable[..., Any] | None = decomposition_table.get(target) or getattr(target, "impl_aten", None)
    return rule


def _attribute(graph: torch.fx.Graph, node: torch.fx.Node) -> Any:
    value: Any = graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    if isinstance(value, torch.Tensor):
        return jnp.asarray(value.detach().cpu().numpy())
    return value


def _promote(found: Lowering, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    if found.promotion == "keep":
        return args, kwargs
    leaves = pytree.tree_leaves(list(args))
    numbers = [leaf for leaf in leaves if is_array(leaf) or isinstance(leaf, bool | int | float | complex)]
    dtype = computation_dtype(numbers, found.promotion)
    return [arg.astype(dtype) if is_array(arg) else arg for arg in args], kwargs


def _conform(name: str, result: Any, expected: Any) -> Any:
    wanted, spec = pytree.tree_flatten(expected)
    got = pytree.tree_leaves(result)
    if len(got) != len(wanted):
        raise LoweringMismatchError(f"{name} gave {len(got)} results, PyTorch gives {len(wanted)}")
    conformed = []
    for value, meta in zip(got, wanted, strict=True):
        if not isinstance(meta, TensorMeta):
            conformed.append(value)
            continue
        value = jnp.asarray(value)
        if value.shape != meta.shape:
            raise LoweringMismatchError(f"{name} gave the shape {value.shape}, PyTorch gives {meta.shape}")
        conformed.append(value.astype(to_jax(meta.dtype)))
    return pytree.tree_unflatten(conformed, spec)


def _decomposed(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
    metas = [
        TensorMeta(shape=tuple(leaf.shape), dtype=to_torch(leaf.dtype)) if is_array(leaf) else leaf for leaf in leaves
    ]
    abstract_args, abstract_kwargs = pytree.tree_unflatten(metas, spec)
    call = OpCall(target=target, args=abstract_args, kwargs=abstract_kwargs, results=None)
    with _decomposing(call):
        return evaluate_graph(decompose(call), [leaf for leaf in leaves if is_array(leaf)])


@contextmanager
def _decomposing(call: OpCall) -> Iterator[None]:
    """Marks a call as being decomposed; one that its own decomposition makes again would never end."""
    signature, outer = call.signature(), _DECOMPOSING.get()
    if signature in outer:
        raise MissingLoweringError(call.operator, "it has no lowering, and its decomposition comes back to itself")
    token = _DECOMPOSING.set((*outer, signature))
    try:
        yield
    finally:
        _DECOMPOSING.reset(token)


def decompose(call: OpCall) -> torch.fx.Graph:
    """Traces PyTorch's decomposition of a call into a functional graph of simpler operators.

    The graph takes the call's tensors, in the order of flattening, and returns a list of the results.

    Raises:
        MissingLoweringError: PyTorch has no decomposition of this operator.
    """
    return _traced_decomposition(_Hashed(call))


class _Hashed:
    """A call as a cache key: by its signature."""

    def __init__(self, call: OpCall) -> None:
        self.call = call
        self.key = call.signature()

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and other.key == self.key


@lru_cache(maxsize=4096)
def _traced_decomposition(hashed: _Hashed) -> torch.fx.Graph:
    call = hashed.call
    rule = decomposition_of(call.target)
    if rule is None:
        raise MissingLoweringError(call.operator, "it has no lowering, and PyTorch has no decomposition of it")

    def run(*tensors: torch.Tensor) -> list[Any]:
        args, kwargs = call.with_tensors(list(tensors))
        # A list: named results (`torch.return_types.max`) would be nodes of the graph.
        return pytree.tree_leaves(rule(*_mutable(args), **_mutable(kwargs)))

    # Fake tensors of device cpu: some decompositions ask for the device.
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), enable_python_dispatcher():
        tensors = [torch.empty(meta.shape, dtype=meta.dtype) for meta in call.tensors]
        return make_fx(dispatch_functionalize(run))(*tensors).graph


def _mutable(value: Any) -> Any:
    """Copies the immutable lists and dicts of a graph's arguments, which decompositions may write to."""
    if isinstance(value, dict):
        return {key: _mutable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mutable(item) for item in value]
    return value

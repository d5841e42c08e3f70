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

import jax
import jax.numpy as jnp
import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tpuc.lowerings.call import SEED, OpCall, TensorMeta, operator_name
from tpuc.lowerings.dtypes import computation_dtype, is_array, to_jax, to_torch, wrapped
from tpuc.lowerings.platforms import by_platform
from tpuc.lowerings.registry import REGISTRY, UNREAD, Lowering
from tpuc.lowerings.strided import rewrite_as_strided
from tpuc.lowerings.subgraphs import attribute_of

Target = Callable[..., Any]

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


def evaluate_call(
    target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], expected: Any, key: Any = None
) -> Any:
    """Evaluates one operator.

    Args:
        target: The operator.
        args: Positional arguments: JAX arrays and Python values.
        kwargs: Keyword arguments, likewise; `SEED` among them makes the key.
        expected: The results' structure, with a `TensorMeta` for each tensor.
        key: JAX's random key, for an operator that `draws`.

    Returns:
        JAX arrays in the structure of `expected`, with its shapes and dtypes.

    Raises:
        MissingLoweringError: The operator cannot be lowered.
        LoweringMismatchError: A lowering returned another shape than `expected` says.
    """
    if SEED in kwargs:
        key = jax.random.key(kwargs[SEED])
        kwargs = {name: value for name, value in kwargs.items() if name != SEED}
    kernels = REGISTRY.kernels(operator_name(target))
    if not kernels:
        return _evaluate(target, args, kwargs, expected, key)
    return _evaluate_by_platform(kernels, target, args, kwargs, expected, key)


def _evaluate(target: Target, args: Sequence[Any], kwargs: dict[str, Any], expected: Any, key: Any) -> Any:
    """Evaluates an operator by its lowering for all platforms, or its decomposition."""
    name = operator_name(target)
    found = REGISTRY.get(name)
    if found is None:
        result = _decomposed(target, args, kwargs, key)
    else:
        args, kwargs = _promote(found, args, kwargs)
        result = found.function(*args, **kwargs) if found.random is None else found.function(key, *args, **kwargs)
    return _conform(name, result, expected)


def _evaluate_by_platform(
    kernels: Sequence[Lowering],
    target: Target,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    expected: Any,
    key: Any,
) -> Any:
    """Evaluates an operator by its kernel on each platform that it has one for."""
    leaves, spec = pytree.tree_flatten((list(args), kwargs))
    structure = pytree.tree_structure(expected)

    def flat(evaluate: Callable[..., Any]) -> Callable[..., list[Any]]:
        def on_arrays(*arrays: Any) -> list[Any]:
            rest = iter(arrays)
            filled = [next(rest) if is_array(leaf) else leaf for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            return pytree.tree_leaves(_conform(operator_name(target), evaluate(*args, **kwargs), expected))

        return on_arrays

    def everywhere(*args: Any, **kwargs: Any) -> Any:
        return _evaluate(target, args, kwargs, expected, key)

    results = by_platform(
        flat(everywhere),
        {kernel.platform: flat(kernel.function) for kernel in kernels if kernel.platform},
        *(leaf for leaf in leaves if is_array(leaf)),
    )
    return pytree.tree_unflatten(results, structure)


def evaluate_graph(graph: torch.fx.Graph, inputs: Sequence[Any], key: Any = None) -> Any:
    """Evaluates a functional graph of operators.

    Args:
        graph: A graph whose call nodes have a fake tensor (or several) as `meta["val"]`.
        inputs: A JAX array or Python value for each placeholder.
        key: JAX's random key, if a node `draws`; each that does gets one of its own.

    Returns:
        What the graph's output node holds, with JAX arrays for tensors.
    """
    values: dict[torch.fx.Node, Any] = {}
    rest = iter(inputs)
    for number, node in enumerate(graph.nodes):
        match node.op:
            case "placeholder":
                values[node] = next(rest)
            case "get_attr":
                values[node] = _value_of(node)
            case "call_function":
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                if node.target is operator.getitem:
                    values[node] = args[0][args[1]]
                elif "val" in node.meta:  # Without, it checks and gives nothing, as `aten._linalg_check_errors`.
                    own_key = jax.random.fold_in(key, number) if key is not None and draws(node) else None
                    values[node] = evaluate_call(node.target, args, kwargs, expected_of(node.meta["val"]), own_key)
            case "output":
                return torch.fx.map_arg(node.args[0], values.__getitem__)
    raise AssertionError("a graph without an output")


def call_of(node: torch.fx.Node) -> OpCall:
    """Describes a node's call, with `TensorMeta` in place of tensors."""

    def described(arg: torch.fx.Node) -> Any:
        return expected_of(attribute_of(arg) if arg.op == "get_attr" else arg.meta["val"])

    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), described)
    results = expected_of(node.meta["val"])
    assert callable(node.target)
    return OpCall(target=node.target, args=tuple(args), kwargs=dict(kwargs), results=results)


def draws(node: torch.fx.Node) -> bool:
    """Whether an operator draws random numbers: its lowering says so, or one that it decomposes into does."""
    found = REGISTRY.get(operator_name(node.target)) if callable(node.target) else None
    if found is not None:
        return found.random is not None and found.random(node)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or "val" not in node.meta:
        return False
    if target.namespace in _TAGGED and torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    try:
        decomposition = decompose(call_of(node))
    except MissingLoweringError:
        return False
    return any(draws(inner) for inner in decomposition.nodes if inner.op == "call_function")


#: Operators of these namespaces are tagged where they draw random numbers; a user's may not be.
_TAGGED = frozenset({"aten", "prims", "tpuc"})


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


def _value_of(node: torch.fx.Node) -> Any:
    value = attribute_of(node)
    if isinstance(value, torch.Tensor):
        return jnp.asarray(value.detach().cpu().numpy())
    return value


def _promote(found: Lowering, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    if found.promotion == "keep":
        return args, kwargs
    leaves = pytree.tree_leaves(list(args))
    numbers = [leaf for leaf in leaves if is_array(leaf) or isinstance(leaf, bool | int | float | complex)]
    dtype = computation_dtype(numbers, found.promotion)
    return [arg.astype(dtype) if is_array(arg) else wrapped(arg, dtype) for arg in args], kwargs


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
        value = jnp.zeros(meta.shape) if value is UNREAD else jnp.asarray(value)
        if value.shape != meta.shape:
            raise LoweringMismatchError(f"{name} gave the shape {value.shape}, PyTorch gives {meta.shape}")
        conformed.append(value.astype(to_jax(meta.dtype)))
    return pytree.tree_unflatten(conformed, spec)


def _decomposed(target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], key: Any) -> Any:
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
    metas = [
        TensorMeta(shape=tuple(leaf.shape), dtype=to_torch(leaf.dtype)) if is_array(leaf) else leaf for leaf in leaves
    ]
    abstract_args, abstract_kwargs = pytree.tree_unflatten(metas, spec)
    call = OpCall(target=target, args=abstract_args, kwargs=abstract_kwargs, results=None)
    with _decomposing(call):
        return evaluate_graph(decompose(call), [leaf for leaf in leaves if is_array(leaf)], key)


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
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        tensors = [torch.empty(meta.shape, dtype=meta.dtype) for meta in call.tensors]
        graph = make_fx(run)(*tensors).graph
        if any(_writes(node) for node in graph.nodes):
            # Only then: functionalization refuses the views of torch._prims, which many decompositions are made of.
            graph = make_fx(dispatch_functionalize(run))(*tensors).graph
    rewrite_as_strided(graph)
    return graph


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _mutable(value: Any) -> Any:
    """Copies the immutable lists and dicts of a graph's arguments, which decompositions may write to."""
    if isinstance(value, dict):
        return {key: _mutable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mutable(item) for item in value]
    return value

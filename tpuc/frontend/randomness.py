"""Makes a program's randomness an explicit input.

A graph in which a node draws random numbers gets one more placeholder, `seed` (i64, no dimensions), and each such node
a seed of its own, derived from it, as one more keyword argument. Which numbers a node draws depends on the seed and on
the node's place among those that draw, on nothing else.
"""

from __future__ import annotations

import operator

import torch

from tpuc.fake import fake_mode_of
from tpuc.lowerings.call import SEED
from tpuc.lowerings.evaluate import draws


def add_seed(graph: torch.fx.Graph) -> bool:
    """Adds the placeholder, after all others, if a node draws random numbers; says whether one does."""
    drawing = [node for node in graph.nodes if node.op == "call_function" and draws(node)]
    if not drawing:
        return False
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        seed = graph.placeholder(SEED)
        split = graph.call_function(torch.ops.tpuc.split_seed.default, (seed, len(drawing)))
        seeds = [graph.call_function(operator.getitem, (split, place)) for place in range(len(drawing))]
    mode = fake_mode_of(graph)
    assert mode is not None, "a captured graph has fake tensors"
    with mode:
        value = torch.empty((), dtype=torch.int64)
    seed.meta["val"] = value
    split.meta["val"] = [value] * len(drawing)
    for own_seed, node in zip(seeds, drawing, strict=True):
        own_seed.meta["val"] = value
        node.kwargs = {**node.kwargs, SEED: own_seed}
    return True

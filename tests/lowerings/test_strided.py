"""Reading and writing storage at strides."""

import pytest
import torch
from torch import nn

from tpuc.frontend.capture import capture, export
from tpuc.lowerings.body import lower_body
from tpuc.lowerings.call import OpCall, TensorMeta

from .support import check, lowered

X = torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((2, 3), (6, 1), 1),
        ((3, 2), (1, 6), 2),
        ((4,), (7,), 0),
        ((5, 4), (3, 1), 2),
        ((2, 2, 3), (12, 0, 2), 1),
        ((2, 1, 2), (5, 99, 4), 0),
        ((0, 3), (1, 1), 30),
        ((), (), 23),
    ],
)
def test_reads_that_nest_overlap_or_repeat(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    check(lambda x: torch.as_strided(x, size, stride, offset), X)


def test_a_view_reads_the_storage_of_what_it_is_a_view_of() -> None:
    check(lambda x: x.t().as_strided((3, 2), (1, 6)), X)
    check(lambda x: x.t()[2:, 1:].as_strided((2, 2), (6, 1)), X)
    check(lambda x: x.split(2)[1].as_strided((3,), (1,)), X)
    check(lambda x: (x.t() + 1).as_strided((3, 2), (1, 6)), X)
    check(lambda x: x.t().contiguous().as_strided((3, 2), (1, 6)), X)


def test_an_input_with_gaps_gives_its_own_elements() -> None:
    (result,) = lowered(lambda x: x.as_strided((4, 2), (6, 4)), X[:, ::2])
    assert result.tolist() == X[:, [0, 4]].tolist()


def test_what_no_element_holds_is_refused() -> None:
    base = TensorMeta(shape=(4, 3), dtype=torch.float32)
    result = TensorMeta(shape=(4, 6), dtype=torch.float32)
    read = torch.ops.tpuc.strided_read.default
    with pytest.raises(NotImplementedError, match="outside of its tensor"):
        lower_body(OpCall(target=read, args=(base, [6, 2], 0, [4, 6], [6, 1], 0), kwargs={}, results=result))


def test_writing_leaves_the_rest_and_drops_what_is_outside() -> None:
    src = -torch.ones(2, 3)
    check(lambda x, s: torch.as_strided_scatter(x, s, (2, 3), (7, 2), 1), X, src)
    check(lambda x, s: torch.as_strided_scatter(x.t(), s, (2, 3), (7, 2), 1), X, src)
    check(torch.as_strided_copy, X, (2, 3), (1, 5), 3)


def test_the_graph_keeps_where_a_read_came_from() -> None:
    class Read(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.as_strided((2,), (1,))

    (node,) = [node for node in capture(export(Read(), (X,), {})).graph.nodes if node.op == "call_function"]
    assert node.target is torch.ops.tpuc.strided_read.default
    assert "as_strided((2,), (1,))" in node.meta["stack_trace"]


def test_branches_are_rewritten_too() -> None:
    class Choose(nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = torch.cond(
                flag, lambda x: x.as_strided((2,), (3,)).clone(), lambda x: x[0, :2] + 1, (x,)
            )
            return result

    graph = capture(export(Choose(), (torch.tensor(True), X), {})).graph
    assert graph.owning_module is not None
    graphs = [module.graph for module in graph.owning_module.modules() if isinstance(module, torch.fx.GraphModule)]
    targets = {str(node.target) for graph in graphs for node in graph.nodes}
    assert len(graphs) == 3
    assert "tpuc.strided_read.default" in targets
    assert "aten.as_strided.default" not in targets

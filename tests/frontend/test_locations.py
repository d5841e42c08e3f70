"""Where a node comes from: the user's frame, not PyTorch's."""

import torch
from torch import Tensor, nn

from tpuc.frontend.locations import location_of, user_frame


class _Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.q_proj(x)  # the line of the linear below


class _Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Inner(), _Inner()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x + 1


def _line_of(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


def test_a_linear_belongs_to_the_line_that_calls_it() -> None:
    graph = torch.export.export(_Outer(), (torch.zeros(2, 4),)).graph
    linear = [node for node in graph.nodes if "linear" in str(node.target)][1]
    location = location_of(linear)
    assert (location.file, location.line) == (__file__, _line_of("the line of the linear below"))
    assert location.module == "layers.1.q_proj"
    assert location.name == "layers.1.q_proj/linear"
    assert location.place == f"{__file__}:{location.line}"


def test_the_model_itself_has_no_path() -> None:
    graph = torch.export.export(_Outer(), (torch.zeros(2, 4),)).graph
    add = next(node for node in graph.nodes if "add" in str(node.target))
    assert location_of(add).name == "add"


def test_frames_of_pytorch_do_not_count() -> None:
    torch_file = torch.nn.modules.linear.__file__
    trace = f'File "/home/me/model.py", line 7, in forward\nFile "{torch_file}", line 134, in forward'
    assert user_frame(trace) == ("/home/me/model.py", 7)
    assert user_frame(f'File "{torch_file}", line 134, in forward') == (torch_file, 134)
    assert user_frame("") == ("", 0)

"""width-to-channels computes what the convolutions do, for every kernel, stride, padding and number of columns."""

import pytest
from jaxlib.mlir import ir

from tpuc import mlir
from tpuc.mlir import find
from tpuc.passes import width_to_channels
from tpuc.passes.base import PassContext
from tpuc.passes.main import Main
from tpuc.passes.width_to_channels import WidthToChannels, find_stages
from tpuc.targets import Target

from .estimators import NothingPays, OneByOne, Refuses
from .evaluation import evaluate, make_inputs


@pytest.fixture(autouse=True)
def few_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes channels for few when there are fewer than eight, so that the programs can be small."""
    monkeypatch.setattr(width_to_channels, "_LANES", 8)


class FewerColumnsPay(OneByOne):
    """Takes a program for the cheaper, the fewer columns its convolutions have."""

    def cycles(self, module: ir.Module) -> int:
        return sum(each.opview.result.type.shape[-1] for each in find(module, "stablehlo.convolution"))


class Program:
    """The text of a program, written operation by operation."""

    def __init__(self, *shape: int) -> None:
        self.lines: list[str] = []
        self.arguments = [f'%x: tensor<{_dims(shape)}xf32> {{tpuc.argument = "input:x"}}']
        self.last = ("%x", shape)

    def weight(self, *shape: int) -> str:
        name = f"%w{len(self.arguments)}"
        self.arguments.append(f'{name}: tensor<{_dims(shape)}xf32> {{tpuc.argument = "weight:{name[1:]}"}}')
        return name

    def convolution(
        self, channels: int, kernel: int, *, stride: int = 1, pads: tuple[int, int] | None = None
    ) -> "Program":
        value, (batch, before, height, width) = self.last
        low, high = pads or (kernel // 2, (kernel - 1) // 2)
        sizes = [(size + low + high - kernel) // stride + 1 for size in (height, width)]
        weight = self.weight(channels, before, kernel, kernel)
        return self._add(
            f"stablehlo.convolution({value}, {weight}) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], "
            f"window = {{stride = [{stride}, {stride}], pad = [[{low}, {high}], [{low}, {high}]]}} "
            "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
            f"(tensor<{_dims(self.last[1])}xf32>, tensor<{channels}x{before}x{kernel}x{kernel}xf32>) -> ",
            (batch, channels, *sizes),
        )

    def bias(self) -> "Program":
        value, shape = self.last
        weight = self.weight(shape[1])
        type_ = f"tensor<{_dims(shape)}xf32>"
        bias = f"%b{len(self.lines)}"
        self.lines.append(
            f"{bias} = stablehlo.broadcast_in_dim {weight}, dims = [1] : (tensor<{shape[1]}xf32>) -> {type_}"
        )
        return self._add(f"stablehlo.add {value}, {bias} : ", shape)

    def add(self, other: tuple[str, tuple[int, ...]]) -> "Program":
        return self._add(f"stablehlo.add {self.last[0]}, {other[0]} : ", self.last[1])

    def tanh(self) -> "Program":
        return self._add(f"stablehlo.tanh {self.last[0]} : ", self.last[1])

    def pool(self, kernel: int, stride: int, low: int) -> "Program":
        value, (batch, channels, height, width) = self.last
        sizes = [(size + 2 * low - kernel) // stride + 1 for size in (height, width)]
        lowest = f"%l{len(self.lines)}"
        self.lines.append(f"{lowest} = stablehlo.constant dense<0xFF800000> : tensor<f32>")
        name = f"%v{len(self.lines)}"
        shape = (batch, channels, *sizes)
        self.lines.append(
            f'{name} = "stablehlo.reduce_window"({value}, {lowest}) <{{'
            f"window_dimensions = array<i64: 1, 1, {kernel}, {kernel}>, "
            f"window_strides = array<i64: 1, 1, {stride}, {stride}>, "
            f"padding = dense<[[0, 0], [0, 0], [{low}, {low}], [{low}, {low}]]> : tensor<4x2xi64>}}> ({{\n"
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
            "  %m = stablehlo.maximum %a, %b : tensor<f32>\n  stablehlo.return %m : tensor<f32>\n"
            f"}}) : (tensor<{_dims(self.last[1])}xf32>, tensor<f32>) -> tensor<{_dims(shape)}xf32>"
        )
        self.last = (name, shape)
        return self

    def _add(self, operation: str, shape: tuple[int, ...]) -> "Program":
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {operation}tensor<{_dims(shape)}xf32>")
        self.last = (name, shape)
        return self

    def text(self, *also: tuple[str, tuple[int, ...]]) -> str:
        results = [self.last, *also]
        types = ", ".join(f"tensor<{_dims(shape)}xf32>" for _, shape in results)
        body = "\n".join(self.lines)
        return (
            f"func.func public @main({', '.join(self.arguments)}) -> ({types}) {{\n{body}\n"
            f"return {', '.join(name for name, _ in results)} : {types}\n}}"
        )


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _check(text: str, *, stages: int = 1) -> str:
    """Compares the program's results before and after, and returns it as it is after."""
    with mlir.make_context() as context:
        module = mlir.parse(text, context)
        inputs = make_inputs(module, 0)
        before = evaluate(module, inputs)
        passed = PassContext(target=Target.parse("v5e"), estimator=FewerColumnsPay())  # type: ignore[arg-type]
        assert WidthToChannels().run(module, passed) == ({"packed": stages} if stages else {})
        module.operation.verify()
        after = evaluate(module, inputs)
        for old, new in zip(before, after, strict=True):
            assert new == pytest.approx(old, rel=1e-4, abs=1e-4)
        return mlir.to_text(module)


@pytest.mark.parametrize("channels", [4, 2])
@pytest.mark.parametrize(("kernel", "pads"), [(1, (0, 0)), (3, (1, 1)), (5, (2, 2)), (2, (0, 1)), (4, (3, 0))])
def test_stage(channels: int, kernel: int, pads: tuple[int, int]) -> None:
    program = Program(1, channels, 4, 8)
    text = program.convolution(channels, kernel, pads=pads).bias().tanh().convolution(channels, 3).text()
    assert f"tensor<1x8x4x{channels}xf32>" in _check(text)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (3, 2), (7, 2), (4, 4), (3, 3)])
def test_way_in_and_out(kernel: int, stride: int) -> None:
    program = Program(2, 3, 12, 24).convolution(4, kernel, stride=stride, pads=(kernel // 2, kernel - 1))
    width = program.last[1][-1]
    text = program.bias().convolution(4, 3).tanh().convolution(3, kernel, stride=stride).text()
    _check(text, stages=0 if width % 2 else 1)


@pytest.mark.parametrize(("kernel", "stride", "low"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), (4, 2, 1)])
def test_maximum_over_windows(kernel: int, stride: int, low: int) -> None:
    program = Program(1, 3, 8, 16).convolution(4, 3).bias().tanh().pool(kernel, stride, low)
    after = _check(program.convolution(4, 3).tanh().convolution(4, 1).text())
    assert f"window_dimensions = array<i64: 1, 1, {kernel}, 1>" in after


def test_residual_stage_with_more_channels() -> None:
    program = Program(1, 4, 4, 8).convolution(16, 1)
    shortcut = program.last
    for _ in range(2):
        program.tanh().convolution(4, 1).bias().tanh().convolution(4, 3).tanh().convolution(16, 1).add(shortcut)
        shortcut = program.last
    after = _check(program.text(shortcut))
    assert "tensor<1x32x4x4xf32>" in after


def test_readers_outside_get_columns_back() -> None:
    program = Program(1, 4, 4, 8).convolution(4, 3)
    first = program.last
    program.tanh().convolution(4, 3)
    second = program.last
    _check(program.pool(2, 2, 0).text(first, second))


@pytest.mark.parametrize(
    "program",
    [
        Program(1, 4, 4, 8).convolution(4, 3),  # one convolution alone
        Program(1, 4, 4, 7).convolution(4, 3).convolution(4, 3),  # an odd width
        Program(1, 8, 4, 8).convolution(8, 3).convolution(8, 3),  # full lanes
        Program(1, 6, 4, 8).convolution(6, 3).convolution(6, 3),  # no number of columns fills them
    ],
)
def test_no_stage(program: Program) -> None:
    with mlir.make_context() as context:
        assert find_stages(Main(mlir.parse(program.text(), context))) == []


@pytest.mark.parametrize("estimator", [None, NothingPays(), Refuses()])
def test_what_does_not_pay_stays(estimator: NothingPays | Refuses | None) -> None:
    text = Program(1, 4, 4, 8).convolution(4, 3).convolution(4, 3).text()
    with mlir.make_context() as context:
        passed = PassContext(target=Target.parse("v5e"), estimator=estimator)  # type: ignore[arg-type]
        assert WidthToChannels().run(mlir.parse(text, context), passed) == {}


def test_programs_of_any_size_stay() -> None:
    text = Program(1, 4, 4, 8).convolution(4, 3).convolution(4, 3).text()
    text = text.replace("@main(", '@main(%n: tensor<i32> {tpuc.argument = "size:batch"}, ')
    with mlir.make_context() as context:
        passed = PassContext(target=Target.parse("v5e"), estimator=FewerColumnsPay())  # type: ignore[arg-type]
        assert WidthToChannels().run(mlir.parse(text, context), passed) == {}

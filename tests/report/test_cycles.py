"""Summing the compiler's estimates: loops, branches, calls and kernels."""

from tpuc.report.cycles import Cycles, count_cycles, count_with_loops
from tpuc.targets import Target

_COST = 'backend_config={"window_config":{"estimated_cycles":"%d"}}'
_HLO = f"""\
HloModule main

%body (arg: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %arg = (s32[], f32[8]) parameter(0)
  %fusion.1 = f32[8]{{0}} fusion(%arg), kind=kLoop, calls=%fused, {_COST % 10}
  %copy.1 = f32[8]{{0}} copy(%fusion.1), {_COST % 5}
  ROOT %t = (s32[], f32[8]) tuple(%arg, %copy.1)
}}

%condition (arg.1: (s32[], f32[8])) -> pred[] {{
  %arg.1 = (s32[], f32[8]) parameter(0)
  %limit = s32[]{{:T(128)}} constant(7)
  ROOT %less = pred[] compare(%arg.1, %limit), direction=LT
}}

%cheap (arg.2: f32[8]) -> f32[8] {{
  ROOT %a = f32[8]{{0}} fusion(%arg.2), {_COST % 1}
}}

%dear (arg.3: f32[8]) -> f32[8] {{
  ROOT %b = f32[8]{{0}} fusion(%arg.3), {_COST % 100}
}}

ENTRY %main.1 (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  %first = f32[8]{{0}} fusion(%p), {_COST % 1000}
  %loop = (s32[], f32[8]) while(%first), condition=%condition, body=%body
  %choice = f32[8]{{0}} conditional(%p, %p, %p), branch_computations={{%cheap, %dear}}
  %called = f32[8]{{0}} call(%p), to_apply=%cheap
  %kernel = f32[8]{{0}} custom-call(%p), custom_call_target="tpu_custom_call"
  ROOT %r = f32[8]{{0}} add(%called, %kernel)
}}
"""


def test_an_operation_counts_as_often_as_it_runs() -> None:
    expected = Cycles(
        estimated=1000 + 7 * 15 + 100 + 1, operations=5, kernels=1, kernel_cycles=0, uncounted_kernels=1, copies=7
    )
    assert count_cycles(_HLO) == expected


def test_the_compilers_own_trip_count_wins() -> None:
    known = _HLO.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"3"}}')
    assert count_cycles(known).estimated == 1000 + 3 * 15 + 100 + 1


def test_a_loop_with_a_name_is_counted_apart() -> None:
    named = _HLO.replace("body=%body", 'body=%body, frontend_attributes={other="1",tpuc.loop="layers"}')
    whole, loops = count_with_loops(named)
    assert whole == count_cycles(_HLO)
    assert {name: cycles.estimated for name, cycles in loops.items()} == {"layers": 7 * 15}
    assert count_with_loops(_HLO) == (whole, {})


def test_a_loop_without_a_bound_is_said() -> None:
    unknown = _HLO.replace("s32[]{:T(128)} constant(7)", "s32[]{:T(128)} parameter(1)")
    cycles = count_cycles(unknown)
    assert cycles.unknown_loops == 1
    assert cycles.estimated == 1000 + 15 + 100 + 1


def _with_kernel(flops: int, accessed: int) -> str:
    cost = f'"cost_estimate":{{"flops":"{flops}","transcendentals":"1","bytes_accessed":"{accessed}"}}'
    target = 'custom_call_target="tpu_custom_call"'
    return _HLO.replace(target, f'{target}, backend_config={{"custom_call_config":{{"body":"",{cost}}}}}')


def test_a_kernel_counts_twice_its_roofline() -> None:
    chip = Target.parse("v5p").chip
    assert chip is not None
    # A millisecond of products, 1.75 million cycles, and half a millisecond of bytes.
    cycles = count_cycles(_with_kernel(459 * 10**9, 1_230_000_000), chip)
    assert (cycles.kernels, cycles.kernel_cycles, cycles.uncounted_kernels) == (1, 3_500_000, 0)
    assert cycles.total == cycles.estimated + 3_500_000
    # The other way around.
    assert count_cycles(_with_kernel(459 * 10**8, 2_460_000_000), chip).kernel_cycles == 3_500_000


def test_without_a_clock_a_kernel_is_not_counted() -> None:
    cycles = count_cycles(_with_kernel(1, 1), Target.parse("v6e").chip)
    assert (cycles.kernel_cycles, cycles.uncounted_kernels) == (0, 1)


def test_kernels_in_a_loop_run_as_often_as_it_does() -> None:
    once = Cycles(estimated=1, kernels=2, kernel_cycles=30, uncounted_kernels=1)
    assert once.times(3) == Cycles(estimated=3, kernels=6, kernel_cycles=90, uncounted_kernels=3)

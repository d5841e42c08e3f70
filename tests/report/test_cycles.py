"""Summing the compiler's estimates: loops, branches, calls and kernels."""

from tpuc.report.cycles import Cycles, count_cycles

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
    assert count_cycles(_HLO) == Cycles(estimated=1000 + 7 * 15 + 100 + 1, operations=5, kernels=1, copies=7)


def test_the_compilers_own_trip_count_wins() -> None:
    known = _HLO.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"3"}}')
    assert count_cycles(known).estimated == 1000 + 3 * 15 + 100 + 1


def test_a_loop_without_a_bound_is_said() -> None:
    unknown = _HLO.replace("s32[]{:T(128)} constant(7)", "s32[]{:T(128)} parameter(1)")
    cycles = count_cycles(unknown)
    assert cycles.unknown_loops == 1
    assert cycles.estimated == 1000 + 15 + 100 + 1

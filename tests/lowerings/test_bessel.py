"""Bessel and Airy functions, against values of their own: eager's lose digits near 5 (they drop a coefficient)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from .support import check, lowered

INF, NAN = float("inf"), float("nan")

#: Function, arguments, values; computed with mpmath 1.3 at 30 digits.
VALUES: list[tuple[Callable[..., Any], list[float], list[float]]] = [
    (
        torch.special.bessel_j0,
        [-5.1, 0.0, 1.5, 4.9, 5.1, 24.0],
        [
            -0.14433474706050065,
            1.0,
            0.5118276717359181,
            -0.2097383275853262,
            -0.14433474706050065,
            -0.056230274166859266,
        ],
    ),
    (
        torch.special.bessel_j1,
        [-5.1, 0.5, 4.9, 5.1, 24.0],
        [0.3370972020182318, 0.2422684576748739, -0.31469467101519066, -0.3370972020182318, -0.15403806518312121],
    ),
    (
        torch.special.bessel_y0,
        [0.1, 2.0, 4.9, 5.1, 24.0],
        [-1.5342386513503667, 0.5103756726497451, -0.2920545942440142, -0.3216024491248594, -0.15283402879758778],
    ),
    (
        torch.special.bessel_y1,
        [0.5, 2.0, 4.9, 5.1, 24.0],
        [-1.471472392670243, -0.10703243154093754, 0.18124669204504856, 0.11373644197749973, 0.05305977612120217],
    ),
    (
        torch.special.modified_bessel_k0,
        [0.1, 1.9, 2.1, 24.0],
        [2.4270690247020164, 0.1288459792760475, 0.10078374088996693, 9.608818780833116e-12],
    ),
    (
        torch.special.modified_bessel_k1,
        [0.5, 1.9, 2.1, 24.0],
        [1.656441120003301, 0.15966015303266762, 0.12274641153350789, 9.806998930441144e-12],
    ),
    (
        torch.special.scaled_modified_bessel_k0,
        [0.1, 1.9, 2.1, 240.0],
        [2.6823261022628944, 0.8614506167517558, 0.8230171525316621, 0.08085904204109905],
    ),
    (
        torch.special.scaled_modified_bessel_k1,
        [0.5, 1.9, 2.1, 240.0],
        [2.731009708211786, 1.0674709298145701, 1.0023680527405792, 0.08102732362976106],
    ),
    (
        torch.special.spherical_bessel_j0,
        [-3.0, 0.0, 0.4, 0.6, 24.0],
        [0.04704000268662241, 1.0, 0.9735458557716262, 0.9410707889917256, -0.03773243175027599],
    ),
    (
        torch.special.airy_ai,
        [-9.0, -2.2, -2.0, 0.0, 2.0, 2.2, 9.0],
        [
            -0.022133721547341403,
            0.09614537800766888,
            0.22740742820168558,
            0.3550280538878172,
            0.03492413042327438,
            0.025610404421773213,
            2.47116843087249e-09,
        ],
    ),
]


@pytest.mark.parametrize(("function", "arguments", "values"), VALUES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 3e-6)])
def test_values(
    function: Callable[..., Any], arguments: list[float], values: list[float], dtype: torch.dtype, tolerance: float
) -> None:
    (result,) = lowered(function, torch.tensor(arguments, dtype=dtype))
    np.testing.assert_allclose(result, values, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("function", [case[0] for case in VALUES], ids=lambda function: function.__name__)
def test_edges_of_the_domain(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([-INF, -1.0, 0.0, 1e-3, INF, NAN]))
    check(function, torch.tensor([1, 2]))


@pytest.mark.parametrize("function", [torch.i0, torch.special.i0e, torch.special.i1, torch.special.i1e])
def test_modified_functions_of_the_first_kind(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([-30.0, -8.0, -0.1, 0.0, 7.9, 8.1, 50.0, NAN]))

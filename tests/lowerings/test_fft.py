"""Fourier transforms against eager."""

import jax
import numpy as np
import pytest
import torch
from jax import lax

from tpuc.lowerings.fft import fft_by_products

from .support import check, lowered


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_normalization(name: str, norm: str) -> None:
    is_complex = name in ("fft", "ifft", "irfft", "hfft")
    x = torch.randn(3, 6, dtype=torch.complex64 if is_complex else torch.float32)
    check(getattr(torch.fft, name), x, norm=norm)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_the_input_is_cut_or_padded(n: int) -> None:
    check(torch.fft.irfft, torch.randn(2, 6, dtype=torch.complex64), n=n)
    check(torch.fft.rfft, torch.randn(2, 6), n=n)


def test_more_dimensions_than_xla_takes_at_once() -> None:
    check(torch.fft.fftn, torch.randn(2, 3, 4, 5, 2, dtype=torch.complex64))
    check(torch.fft.rfftn, torch.randn(2, 3, 4, 5))
    check(torch.fft.irfftn, torch.randn(2, 3, 4, 5, dtype=torch.complex64), s=(2, 3, 4, 7))


def test_dimensions_in_any_order() -> None:
    check(torch.fft.rfftn, torch.randn(4, 5, 6), dim=(2, 0))
    check(torch.fft.fftn, torch.randn(4, 5, 6), dim=(-3, 1))


def test_integers_and_f64() -> None:
    check(torch.fft.fft, torch.arange(5))
    check(torch.fft.rfft, torch.randn(5, dtype=torch.float64))


def test_an_empty_batch() -> None:
    """Eager's library refuses it; the shape is clear all the same."""
    assert lowered(torch.fft.fft, torch.zeros(0, 4, dtype=torch.complex64))[0].shape == (0, 4)
    assert lowered(torch.fft.rfft, torch.zeros(0, 4))[0].shape == (0, 3)


@pytest.mark.parametrize("center", [True, False])
def test_short_time_transform_and_back(center: bool) -> None:
    window = torch.hann_window(12)
    check(torch.stft, torch.randn(2, 100), 16, 5, 12, window, center=center, return_complex=True)
    spectrum = torch.stft(torch.randn(2, 100), 16, 4, window=torch.hann_window(16), return_complex=True)
    check(torch.istft, spectrum, 16, 4, window=torch.hann_window(16))


SIZES = {"FFT": [(5,), (3, 4, 6)], "IFFT": [(6,), (4, 5)], "RFFT": [(6,), (7,)], "IRFFT": [(1,), (2,), (6,), (7,)]}


@pytest.mark.parametrize(("kind", "sizes"), [(kind, sizes) for kind in SIZES for sizes in SIZES[kind]])
def test_in_64_bits_as_a_tpu_computes_it(kind: str, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    shape = (2, *sizes[:-1], sizes[-1] // 2 + 1 if kind == "IRFFT" else sizes[-1])
    x = random.standard_normal(shape)
    if kind != "RFFT":
        x = x + 1j * random.standard_normal(shape)
    with jax.enable_x64(True):
        expected = lax.fft(x, lax.FftType[kind], sizes)
        result = fft_by_products(jax.numpy.asarray(x), kind=lax.FftType[kind], sizes=sizes)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, atol=1e-13)

"""Tests of what is particular to the cpu inside jaxlib; test_device.py has the rest."""

from __future__ import annotations

import gc
import importlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from jaxlib import version

from tpuc.runtime.cpu import _register_lapack
from tpuc.runtime.device import Device, open_device
from tpuc.runtime.dtypes import DTYPES
from tpuc.runtime.errors import DeviceError
from tpuc.runtime.host import host_fingerprint
from tpuc.runtime.spec import TensorSpec
from tpuc.runtime.tensor_file import TensorFile, TensorSource, write_tensor_file

from .sample_artifacts import portable


def test_its_compiler_is_jaxlib(cpu: Device) -> None:
    assert cpu.compiler == {"jaxlib": version.__version__}
    assert cpu.host == host_fingerprint()


def test_the_fingerprint_of_the_host() -> None:
    assert re.fullmatch(r"\w+-[0-9a-f]{12}", host_fingerprint())
    assert host_fingerprint() == host_fingerprint()


QR = """
func.func @main(%x: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xf32>) {
  %0:2 = stablehlo.custom_call @lapack_sgeqrf_ffi(%x) {
    api_version = 4 : i32, mhlo.backend_config = {},
    operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<
      output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>]
  } : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xf32>)
  return %0#0, %0#1 : tensor<3x3xf32>, tensor<3xf32>
}
"""


def test_programs_may_call_lapack(tmp_path: Path) -> None:
    # In a process of its own, where nothing else has registered LAPACK.
    results = [TensorSpec.parse("f32[3,3]"), TensorSpec.parse("f32[3]")]
    (tmp_path / "executable").write_bytes(open_device("cpu").compile(portable(QR), results).serialize())
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        import numpy as np
        from tpuc.runtime.device import open_device
        from tpuc.runtime.spec import TensorSpec
        cpu = open_device("cpu")
        results = [TensorSpec.parse("f32[3,3]"), TensorSpec.parse("f32[3]")]
        program = cpu.load(Path({str(tmp_path / "executable")!r}).read_bytes(), results)
        x = np.array([[3, 1, 2], [4, 1, 0], [0, 1, 5]], np.float32)
        r = np.triu(program.run([cpu.put(x)])[0].to_numpy())
        np.testing.assert_allclose(r.T @ r, x.T @ x, rtol=1e-5)
        """
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_scipy_the_error_says_what_to_do(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxlib.cpu._lapack", SimpleNamespace(initialize=lambda: importlib.import_module("no_scipy")))
    _register_lapack.cache_clear()
    with pytest.raises(DeviceError, match=r"(?s)needs LAPACK.*pip install scipy"):
        cpu.compile(portable(QR), [])


def test_a_mapped_file_is_let_go_of(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    write_tensor_file(path, {"x": TensorSource.of_array(np.zeros(1 << 16, np.float32))})

    def is_mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    file = TensorFile.open(path)
    buffer = open_device("cpu").put(file.array("x", DTYPES["f32"], (1 << 16,)))
    del file
    gc.collect()
    assert is_mapped()
    buffer.delete()
    gc.collect()
    assert not is_mapped()

"""The process that runs torch-mlir's passes: `python -m tpuc.frontend.torch_mlir_worker`.

torch-mlir ends the process on some inputs and never ends on others, so it runs where that can be seen. It needs
only torch-mlir's MLIR bindings, not PyTorch.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.passmanager import PassManager

from tpuc.errors import BackendError
from tpuc.worker import Blobs, Fields, serve

#: torch-mlir's own pipelines, taken apart: without `chlo-legalize-to-stablehlo`, so that XLA sees erf and top_k as
#: such; with i32 indices; and without the final verifier, so that calls to bodies of ours pass.
PIPELINE = (
    "func.func(torch-match-quantized-custom-ops)",
    "torchdynamo-export-to-torch-backend-pipeline",
    "func.func(convert-torch-to-stablehlo{enable-static-shape=true enable-i32-index=true allow-non-finites=true})",
    "func.func(convert-torch-to-arith)",
    "func.func(canonicalize)",
    "func.func(cse)",
    "torch-func-backend-type-conversion-for-stablehlo",
    "func.func(canonicalize)",
    "func.func(torch-finalizing-backend-type-conversion-for-stablehlo)",
    "func.func(canonicalize)",
)


def convert(fields: Fields, blobs: Blobs) -> tuple[Fields, Blobs]:
    """Takes a module of the torch dialect to StableHLO, CHLO and arith, as text with locations."""
    context = ir.Context()
    torch_dialect.register_dialect(context)
    with context:
        # The torch_c dialect exists only once a pass that needs it has run.
        _run("torch-func-backend-type-conversion-for-stablehlo", ir.Module.parse("module {}"))
        module = ir.Module.parse(blobs["module"])
        for name in PIPELINE:
            try:
                _run(name, module)
            except ir.MLIRError as error:
                raise BackendError(f"torch-mlir's {name} failed: {error}") from error
        # Text: torch-mlir's StableHLO is newer than jaxlib's, and neither reads the other's bytecode.
        return {}, {"module": module.operation.get_asm(enable_debug_info=True).encode()}


def _run(name: str, module: ir.Module) -> None:
    PassManager.parse(f"builtin.module({name})").run(module.operation)


if __name__ == "__main__":
    serve({"convert": convert})

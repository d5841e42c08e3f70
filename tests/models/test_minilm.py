"""all-MiniLM-L6-v2 on two sentences that mean nearly the same, as eager sees them."""

from tpuc import runtime
from tpuc.run import random_input

from .conftest import Models


def test_the_similarity_is_eagers_to_four_places(models: Models) -> None:
    record = models.build_for_cpu("minilm")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4
    assert record.agreement.check is True

    with runtime.load(models.artifact("minilm")) as program:
        outputs = program(**{spec.name: random_input(spec, 0) for spec in program.inputs})
    # Tokens at random, and still a cosine of two embeddings of length one.
    assert outputs["similarity"].shape == ()
    assert abs(float(outputs["similarity"])) <= 1 + 1e-6
    assert abs(float((outputs["embeddings"] ** 2).sum()) - 2) < 1e-5

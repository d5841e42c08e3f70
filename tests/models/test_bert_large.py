"""BERT-large with random weights, as eager computes it."""

import pytest

from .conftest import Models


def test_it_has_the_size_of_bert_large(models: Models) -> None:
    # The paper says 340 M, and Google's checkpoint without its heads has this many.
    assert models.count_parameters("bert_large") == 335_141_888


@pytest.mark.slow  # 335 M random numbers, and twice their memory.
def test_the_hidden_states_are_eagers(models: Models) -> None:
    record = models.build_for_cpu("bert_large")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4

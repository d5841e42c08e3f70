"""ResNet-50 with random weights, as eager computes it."""

from .conftest import Models


def test_the_logits_are_eagers(models: Models) -> None:
    record = models.build_for_cpu("resnet50")
    assert record.outcome == "built", record.reason
    assert record.agreement is not None
    assert record.agreement.error <= 1e-4
    # As torchvision's documentation gives it for its resnet50.
    assert record.parameters == 25_557_032

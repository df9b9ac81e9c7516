"""A tokenizer of single characters, as a real Hugging Face tokenizer folder.

Twenty-four characters are all that the arithmetic needs. Any other character becomes `<unk>`, so that every text can be
encoded: on a pool of word problems the tiny model is hopeless, but it runs.
"""

from __future__ import annotations

import string

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tossup.engine.arithmetic.problems import PLACES

SPECIAL = ("<pad>", "<eos>", "<unk>")
ALPHABET = string.digits + PLACES + "+-*="
"""Every character that has a token of its own."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character, no token added around the text; decoding joins the characters again."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *ALPHABET))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )

"""Tiny randomly initialised models with a vocabulary of a few words, made locally: nothing is downloaded."""

from pathlib import Path

WORDS = [
    "a", "the", "cat", "dog", "bird", "fish", "house", "tree", "river", "stone", "sings", "runs", "sleeps", "eats",
    "swims", "flies", "is", "was", "big", "small", "red", "green", "blue", "old", "young", "what", "where", "who",
]  # fmt: skip


BERT = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
LLAMA = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<eos>"}


def make_tokenizer(special):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([*special.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if "cls_token" in special:
        cls, sep = special["cls_token"], special["sep_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **special)


def save_cross_encoder(folder: Path, *, dropout: float = 0.0) -> str:
    """A BERT of one layer with one output, on disk."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = make_tokenizer(BERT)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0, num_labels=1,
        initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def make_language_model(*, classifier: bool):
    """A Llama of one layer and its tokenizer: a reward model with one output, or a causal language model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    tokenizer = make_tokenizer(LLAMA)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    return (LlamaForSequenceClassification if classifier else LlamaForCausalLM)(config), tokenizer

# SPDX-License-Identifier: MIT
"""Transformers, of words unless said otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.zoo.networks import Entry

#: Of an input of words: two sentences of as many words, of so many different ones
SENTENCES, WORDS = (2, 8), 20
#: Functions that drop nothing
SURE = {"dropout": 0.0, "activation_dropout": 0.0, "attention_dropout": 0.0, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
#: Of a sequence of vectors
VECTORS = (2, 8, 16)


def of_config(name: str, named: dict[str, Any], ending: str = "Model", **more: Any) -> Entry:
    """A network of the package transformers, made by a small configuration, of words unless said otherwise."""
    given: dict[str, Any] = {"shape": SENTENCES, "below": WORDS, "output": "last_hidden_state"} | more
    label = name if ending == "Model" else name + ending
    return Entry("transformers", name + ending, (), named, config=f"{name}Config", label=label, adamw=True, **given)


def _decoders() -> Iterator[Entry]:
    """That read from left to right."""
    usual = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 32, "use_cache": False, "pad_token_id": None,
             "bos_token_id": 0, "eos_token_id": 0, **SURE}
    grouped = {**usual, "num_key_value_heads": 1, "head_dim": 8}
    yield of_config("GPT2", {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32,
                              "use_cache": False})
    yield of_config("GPTNeo", {**usual, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
                                "window_size": 4})
    yield of_config("GPTNeoX", usual)
    yield of_config("GPTJ", {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32,
                              "rotary_dim": 4, "use_cache": False})
    for name in ("CTRL", "OpenAIGPT", "CodeGen", "GPTBigCode"):
        yield of_config(name, {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 4 if name == "CodeGen" else 2,
                               "n_positions": 32, "use_cache": False, **SURE}
                        | {"CTRL": {"dff": 32}, "CodeGen": {"rotary_dim": 4}}.get(name, {}))
    yield of_config("OPT", {**usual, "ffn_dim": 32, "word_embed_proj_dim": 16, "pad_token_id": 1})
    yield of_config("Bloom", {"vocab_size": WORDS, "hidden_size": 16, "n_layer": 2, "n_head": 2, "use_cache": False})
    yield of_config("Falcon", {**usual, "new_decoder_architecture": False, "multi_query": True})
    yield of_config("Mpt", {"vocab_size": WORDS, "d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 32,
                             "use_cache": False})
    yield of_config("Llama", grouped)
    yield of_config("Mistral", {**grouped, "sliding_window": 4})
    yield of_config("Qwen2", grouped)
    yield of_config("Qwen3", grouped)
    yield of_config("Gemma", grouped)
    yield of_config("Gemma2", {**grouped, "sliding_window": 4, "query_pre_attn_scalar": 8})
    yield of_config("Phi", usual)
    yield of_config("Phi3", {**grouped, "pad_token_id": 0})
    yield of_config("StableLm", grouped)
    yield of_config("Starcoder2", grouped)
    for name in ("Olmo2", "Olmo", "Granite", "Helium", "Glm", "Persimmon", "Nemotron", "Exaone4", "Ernie4_5",
                 "Arcee"):
        yield of_config(name, usual if name == "Persimmon" else grouped | {"pad_token_id": 0})
    yield of_config("Cohere", grouped)
    yield of_config("SmolLM3", {**grouped, "pad_token_id": 0})
    yield of_config("BioGpt", usual | {"pad_token_id": 1})
    yield of_config("XGLM", {"vocab_size": WORDS, "d_model": 16, "ffn_dim": 32, "num_layers": 2, "attention_heads": 2,
                              "max_position_embeddings": 32, "use_cache": False, **SURE})


def _encoders() -> Iterator[Entry]:
    """That read both ways."""
    usual = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 32, "pad_token_id": 0, **SURE}
    yield of_config("Bert", usual)
    yield of_config("Roberta", usual)
    yield of_config("Electra", {**usual, "embedding_size": 8})
    yield of_config("Albert", {**usual, "embedding_size": 8})
    yield of_config("DistilBert", {"vocab_size": WORDS, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32,
                                    "max_position_embeddings": 32})
    yield of_config("MPNet", usual)
    yield of_config("Deberta", {**usual, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                                 "max_relative_positions": 8})
    yield of_config("DebertaV2", {**usual, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                                   "position_buckets": 4})
    yield of_config("FNet", {**usual, "tpu_short_seq_length": 8})
    yield of_config("SqueezeBert", {**usual, "embedding_size": 16, "q_groups": 1, "k_groups": 1, "v_groups": 1,
                                     "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1})
    for name in ("RoFormer", "Ernie", "RemBert", "BertGeneration", "Splinter", "LayoutLM"):
        yield of_config(name, usual, *(["Encoder"] if name == "BertGeneration" else []))
    yield of_config("MobileBert", {**usual, "embedding_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8,
                                    "num_feedforward_networks": 2})
    yield of_config("ConvBert", {**usual, "embedding_size": 16, "conv_kernel_size": 3})
    yield of_config("MegatronBert", usual)
    yield of_config("ModernBert", {**usual, "global_attn_every_n_layers": 2, "local_attention": 4})
    yield of_config("XLNet", {"vocab_size": WORDS, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, **SURE})
    yield of_config("XLM", {"vocab_size": WORDS, "emb_dim": 16, "n_layers": 2, "n_heads": 2,
                             "max_position_embeddings": 32, **SURE})
    yield of_config("Canine", {**usual, "local_transformer_stride": 4, "num_hash_buckets": WORDS})
    yield of_config("Funnel", {**SURE, "vocab_size": WORDS, "block_sizes": [1, 1], "num_decoder_layers": 1,
                               "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "hidden_dropout": 0.0})
    yield of_config("Perceiver", {**SURE, "num_latents": 4, "d_latents": 16, "d_model": 16, "num_blocks": 1,
                                  "num_self_attends_per_block": 2, "num_self_attention_heads": 2,
                                  "num_cross_attention_heads": 2}, shape=VECTORS, below=0)
    yield of_config("CLIPText", {**usual, "projection_dim": 8})
    for name in ("T5", "MT5", "UMT5"):
        yield of_config(name, {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2,
                               "num_heads": 2, "dropout_rate": 0.0, "relative_attention_num_buckets": 4},
                        "EncoderModel")
    whole = {"vocab_size": WORDS, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
             "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
             "max_position_embeddings": 32, "use_cache": False, **SURE}
    yield of_config("Bart", whole)
    yield of_config("MBart", whole | {"pad_token_id": 1})


def _small() -> Iterator[Entry]:
    """Of small packages for attention."""
    words: dict[str, Any] = {"shape": SENTENCES, "below": WORDS, "adamw": True}
    rows: dict[str, Any] = {"shape": VECTORS, "adamw": True}
    yield Entry("linformer", "Linformer", (), {"dim": 16, "seq_len": 8, "depth": 2, "heads": 2, "k": 4}, **rows)
    yield Entry("linformer", "LinformerLM", (), {"num_tokens": WORDS, "dim": 16, "seq_len": 8, "depth": 2, "heads": 2,
                                                 "k": 4}, **words)
    yield Entry("nystrom_attention", "Nystromformer", (), {"dim": 16, "dim_head": 8, "heads": 2, "depth": 2,
                                                           "num_landmarks": 4}, **rows)
    small = {"dim": 16, "depth": 2, "heads": 2, "dim_head": 8, "nb_features": 8, "auto_check_redraw": False}
    yield Entry("performer_pytorch", "Performer", (), small, **rows)
    yield Entry("performer_pytorch", "PerformerLM", (), {"num_tokens": WORDS, "max_seq_len": 8, **small}, **words)
    yield Entry("perceiver_pytorch", "Perceiver", (), {
        "num_freq_bands": 2, "depth": 2, "max_freq": 4.0, "input_channels": 3, "input_axis": 1, "num_latents": 4,
        "latent_dim": 16, "cross_dim_head": 8, "latent_heads": 2, "latent_dim_head": 8, "num_classes": 4},
        (2, 8, 3), adamw=True)
    yield Entry("perceiver_pytorch", "PerceiverIO", (), {
        "dim": 16, "depth": 2, "queries_dim": 16, "num_latents": 4, "latent_dim": 16, "cross_dim_head": 8,
        "latent_heads": 2, "latent_dim_head": 8}, **rows)
    yield Entry("local_attention", "LocalTransformer", (), {
        "num_tokens": WORDS, "dim": 16, "depth": 2, "max_seq_len": 8, "local_attn_window_size": 4, "heads": 2,
        "dim_head": 8}, **words)
    yield Entry("axial_attention", "AxialAttention", (), {"dim": 16, "dim_index": 1, "heads": 2, "num_dimensions": 2},
                (2, 16, 6, 6), adamw=True)
    yield Entry("axial_attention", "AxialImageTransformer", (), {
        "dim": 16, "depth": 2, "heads": 2, "reversible": False}, (2, 16, 6, 6), adamw=True)
    yield Entry("conformer", "Conformer", (), {"dim": 16, "depth": 2, "dim_head": 8, "heads": 2,
                                               "conv_kernel_size": 3}, **rows)
    for kind, more in (("Decoder", {}), ("Encoder", {"rotary_pos_emb": True, "use_rmsnorm": True, "ff_glu": True}),
                       ("Decoder", {"alibi_pos_bias": True, "ff_swish": True}), ("Encoder", {"rel_pos_bias": True})):
        layers = Entry("x_transformers", kind, (), {"dim": 16, "depth": 2, "heads": 2, "attn_dim_head": 8, **more})
        yield Entry("x_transformers", "TransformerWrapper", (), {
            "num_tokens": WORDS, "max_seq_len": 8, "attn_layers": layers}, **words,
            label=" ".join((kind, *(one.partition("_")[0] for one in more))))
        if not more or "rel_pos_bias" in more:
            yield Entry("x_transformers", "ContinuousTransformerWrapper", (), {
                "dim_in": 16, "dim_out": 4, "max_seq_len": 8, "attn_layers": layers}, **rows,
                label=f"continuous {kind}")
    yield Entry("g_mlp_pytorch", "gMLP", (), {"num_tokens": WORDS, "dim": 16, "depth": 2, "seq_len": 8}, **words)
    yield Entry("mlp_mixer_pytorch", "MLPMixer", (), {
        "image_size": 16, "channels": 3, "patch_size": 4, "dim": 16, "depth": 2, "num_classes": 4}, (2, 3, 16, 16),
        adamw=True)
    yield Entry("gateloop_transformer", "Transformer", (), {
        "num_tokens": WORDS, "dim": 16, "depth": 2, "use_gate_looped_attn": True}, **words)


TRANSFORMERS: tuple[Entry, ...] = (*_decoders(), *_encoders(), *_small())

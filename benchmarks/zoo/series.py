# SPDX-License-Identifier: MIT
"""Recurrent networks, networks of time series and of sound, and neural operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.zoo.networks import Entry
from benchmarks.zoo.sequences import SURE, TRANSFORMERS, VECTORS, WORDS, of_config

#: Of words, and of vectors
_WORDS: dict[str, Any] = {"shape": (2, 8), "below": WORDS, "adamw": True}
_ROWS: dict[str, Any] = {"shape": VECTORS, "adamw": True}


def _recurrent() -> Iterator[Entry]:
    """That read one time after the other, or as if they did."""
    usual = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "use_cache": False}
    yield of_config("Mamba", {**usual, "state_size": 4})
    yield of_config("FalconMamba", {**usual, "state_size": 4})
    yield of_config("Mamba2", {**usual, "state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4})
    yield of_config("Rwkv", {**usual, "context_length": 8})
    yield of_config("xLSTM", {**usual, "num_heads": 2, "chunk_size": 4})
    yield of_config("RecurrentGemma", {**usual, "num_hidden_layers": 3, "num_attention_heads": 2, "lru_width": 16,
                                       "intermediate_size": 32, "attention_window_size": 4})
    yield Entry("mambapy.mamba", "Mamba", (), {"d_model": 16, "n_layers": 1, "d_state": 4, "pscan": False},
                config="MambaConfig", **_ROWS)
    yield Entry("minGRU_pytorch.minGRU", "minGRU", (16,), **_ROWS)
    yield Entry("minGRU_pytorch.minLSTM", "minLSTM", (16,), **_ROWS)
    yield Entry("minGRU_pytorch.minLM", "minLM", (), {"num_tokens": WORDS, "dim": 16, "depth": 2}, **_WORDS)
    for mode in ("default", "pure", "no_gate"):
        yield Entry("ncps.torch", "CfC", (16, 8), {"mode": mode}, output=0, label=f"CfC {mode}", **_ROWS)
    yield Entry("ncps.torch", "LTC", (16, 8), output=0, **_ROWS)


def _times() -> Iterator[Entry]:
    """Of series of numbers, and of sound."""
    series = (2, 12, 3)
    sure = {"dropout": 0.0, "attention_dropout": 0.0, "positional_dropout": 0.0, "path_dropout": 0.0, "ff_dropout": 0.0,
            "head_dropout": 0.0, "loss": "mse"}
    patches = {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8,
               "prediction_length": 4, "d_model": 16, **sure}
    long: dict[str, Any] = {"shape": (2, 32, 3), "below": 0, "output": "prediction_outputs"}
    yield of_config("PatchTST", {**patches, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32},
                    "ForPrediction", **long)
    yield of_config("PatchTSMixer", {**patches, "num_layers": 2}, "ForPrediction", **long)
    yield Entry("pytorch_tcn", "TCN", (16, [8, 8]), {"dropout": 0.0}, (2, 16, 12), adamw=True)
    yield Entry("pytorch_tcn", "TCN", (16, [8, 8]), {
        "dropout": 0.0, "use_norm": "batch_norm", "use_skip_connections": True, "use_gate": True, "causal": False},
        (2, 16, 12), adamw=True, label="TCN with gates")
    small = {"num_variates": 3, "lookback_len": 12, "depth": 1, "dim": 16, "pred_length": 4, "dim_head": 8, "heads": 2}
    yield Entry("iTransformer", "iTransformer", (), small, series, adamw=True)
    yield Entry("iTransformer", "iTransformer2D", (), {**small, "num_time_tokens": 4}, series, 0, adamw=True)
    yield Entry("iTransformer", "iTransformerFFT", (), small, series, 0, adamw=True)
    sound = {**SURE, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
             "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_conv_pos_embeddings": 4,
             "num_conv_pos_embedding_groups": 2, "hidden_dropout": 0.0, "feat_proj_dropout": 0.0, "layerdrop": 0.0,
             "apply_spec_augment": False}
    for name in ("Wav2Vec2", "WavLM", "Data2VecAudio"):
        # Which asks for gradients of the input otherwise
        yield of_config(name, sound, shape=(2, 400), below=0, then="freeze_feature_encoder")
    yield of_config("Whisper", {
        **SURE, "num_mel_bins": 8, "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2,
        "encoder_ffn_dim": 32, "max_source_positions": 8, "classifier_proj_size": 8}, "ForAudioClassification",
        shape=(2, 8, 16), below=0, output="logits")
    yield of_config("AST", {
        **SURE, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "max_length": 16, "num_mel_bins": 16, "patch_size": 4, "frequency_stride": 4, "time_stride": 4},
        shape=(2, 16, 16), below=0)


def _operators() -> Iterator[Entry]:
    """Of functions on grids."""
    one = {"in_channels": 1, "out_channels": 1, "n_layers": 2}
    plane = (2, 1, 16, 16)
    yield Entry("neuralop.models", "FNO", (), {**one, "n_modes": (8,), "hidden_channels": 8}, (2, 1, 16), adamw=True,
                label="FNO 1-D")
    yield Entry("neuralop.models", "FNO", (), {**one, "n_modes": (8, 8), "hidden_channels": 8}, plane, adamw=True)
    yield Entry("neuralop.models", "FNO", (), {**one, "n_modes": (4, 4, 4), "hidden_channels": 4}, (2, 1, 8, 8, 8),
                adamw=True, label="FNO 3-D")
    yield Entry("neuralop.models", "TFNO", (), {
        **one, "n_modes": (8, 8), "hidden_channels": 8, "factorization": "tucker", "implementation": "factorized",
        "rank": 0.5}, plane, adamw=True)
    yield Entry("neuralop.models", "FNO", (), {**one, "n_modes": (8, 8), "hidden_channels": 8, "separable": True},
                plane, adamw=True, label="FNO separable")
    yield Entry("neuralop.models", "FNO", (), {
        **one, "n_modes": (8, 8), "hidden_channels": 8, "channel_mlp_dropout": 0.0, "norm": "group_norm",
        "positional_embedding": None}, plane, adamw=True, label="FNO with norms")
    yield Entry("neuralop.models", "UNO", (1, 1), {
        "hidden_channels": 8, "uno_out_channels": [8, 8, 8], "uno_n_modes": [[4, 4]] * 3,
        "uno_scalings": [[1, 1], [0.5, 0.5], [2, 2]], "horizontal_skips_map": {2: 0}, "n_layers": 3,
        "channel_mlp_skip": "linear"}, plane, adamw=True)
    yield Entry("neuralop.models", "CODANO", (), {
        "n_layers": 2, "n_modes": [[4, 4]] * 2, "per_layer_scaling_factors": [[1, 1]] * 2, "n_heads": [1, 1],
        "hidden_variable_codimension": 4, "lifting_channels": 8, "projection_channels": 8,
        "output_variable_codimension": 1, "attention_scaling_factors": [1, 1]}, plane, adamw=True)


#: Networks of sequences and of functions, by their kinds
SEQUENCES: dict[str, tuple[Entry, ...]] = {
    "transformers": TRANSFORMERS, "recurrent networks": tuple(_recurrent()), "time series and sound": tuple(_times()),
    "neural operators": tuple(_operators())}

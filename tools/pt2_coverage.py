#!/usr/bin/env python3
"""Which families of models are imported, with which gradients: a table.

    python tools/pt2_coverage.py DIR TEST                 all of them; DIR keeps the archives
    python tools/pt2_coverage.py DIR TEST --only resnet   those whose name has the word; --set torchvision|transformers|other
    python tools/pt2_coverage.py DIR TEST --table FILE    writes the table as Markdown

TEST is the compiled tests/import/test_goldens.c (make test T=import/test_goldens). Each family is a small model with random
weights in training mode, dropout off, in float64: exported, then run by PyTorch and by TEST, which prints how far results,
gradients of all inputs and parameters, and buffers are apart. PyTorch, torchvision and transformers come from their wheels.
"""
import argparse, os, re, subprocess, sys, time, warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch, torch.nn as nn, torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pt2_goldens as goldens


class Call(nn.Module):
    """fn(module, *inputs) -> tensors"""

    def __init__(self, fn, **modules):
        super().__init__()
        self.fn = fn
        for k, m in modules.items():
            setattr(self, k, m)

    def forward(self, *xs):
        return self.fn(self, *xs)


def image(n, side, channels=3):
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(1))


def ids(vocab, n=2, t=8):
    return torch.randint(3, vocab, (n, t), generator=torch.Generator().manual_seed(1))


def no_dropout(model):
    """Everything random off, rates of stochastic depth too; batch norms of a few values well-conditioned."""
    for m in model.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.eps = 0.1
        if isinstance(m, (nn.Dropout, nn.Dropout2d, nn.Dropout1d, nn.AlphaDropout)):
            m.p = 0.0
        for k in ("drop_prob", "dropout", "attention_dropout", "dropout_p", "p") if type(m).__name__ in ("StochasticDepth", "MultiheadAttention") else ("drop_prob",):
            if isinstance(getattr(m, k, None), float):
                setattr(m, k, 0.0)
    return model


# ---- torchvision

CLASSIFIERS = dict(alexnet=64, vgg11_bn=32, resnet18=32, resnet50=32, densenet121=32, googlenet=64, inception_v3=80, mobilenet_v2=32,
                   mobilenet_v3_small=32, shufflenet_v2_x0_5=32, squeezenet1_0=32, efficientnet_b0=32, efficientnet_v2_s=32,
                   regnet_y_400mf=32, convnext_tiny=32, vit_b_16=32, swin_t=32, swin_v2_t=64, maxvit_t=64, mnasnet0_5=32,
                   resnext50_32x4d=32, wide_resnet50_2=32)
SEGMENTERS = dict(fcn_resnet50=32, deeplabv3_resnet50=32, lraspp_mobilenet_v3_large=32)


def declare_detection():
    """A wheel of torchvision for another device lacks the operators of detection, which none of these models uses."""
    for op in ("nms", "qnms", "deform_conv2d", "_deform_conv2d_backward", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward",
               "ps_roi_align", "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward"):
        try:
            torch.library.define("torchvision::" + op, "(Tensor x) -> Tensor")
        except RuntimeError:
            pass


def torchvision_models():
    import torchvision.models as tv

    def small_vit():
        return tv.VisionTransformer(image_size=32, patch_size=16, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10)

    def small_head(name, wide):  # the published one has 60 million parameters, all of them linear layers
        net = tv.get_model(name, weights=None, num_classes=10)
        net.classifier = nn.Sequential(nn.Dropout(), nn.Linear(wide, 32), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 10))
        return net

    special = dict(alexnet=lambda: small_head("alexnet", 9216), vgg11_bn=lambda: small_head("vgg11_bn", 25088), vit_b_16=small_vit, maxvit_t=lambda: tv.MaxVit(input_size=(64, 64), stem_channels=16, block_channels=[16, 32], block_layers=[1, 1], head_dim=8, stochastic_depth_prob=0.0, partition_size=4, num_classes=10))

    def all_results(m, x):
        y = m.net(x)
        return tuple(y.values()) if isinstance(y, dict) else tuple(y) if isinstance(y, tuple) else y

    def classifier(name):
        if name in special:
            return special[name]()
        extra = {"googlenet": dict(init_weights=False), "inception_v3": dict(init_weights=False, aux_logits=False)}.get(name, {})
        return tv.get_model(name, weights=None, num_classes=10, **extra)

    for name, side in CLASSIFIERS.items():
        yield name, lambda name=name, side=side: (Call(all_results, net=no_dropout(classifier(name))), (image(2, side),))
    for name, side in SEGMENTERS.items():
        yield name, lambda name=name, side=side: (Call(all_results, net=no_dropout(tv.get_model(name, weights=None, weights_backbone=None, num_classes=5))), (image(2, side),))
    yield "r3d_18", lambda: (Call(all_results, net=no_dropout(tv.get_model("r3d_18", weights=None, num_classes=5))), (torch.rand(2, 3, 4, 16, 16, generator=torch.Generator().manual_seed(1)),))


# ---- transformers

BASE = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=32)
GQA = dict(BASE, num_key_value_heads=2)
OFF = dict(use_cache=False, attention_dropout=0.0, hidden_dropout=0.0, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, attention_probs_dropout_prob=0.0,
           hidden_dropout_prob=0.0, dropout=0.0, activation_dropout=0.0, classifier_dropout=0.0, layerdrop=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
           dropout_rate=0.0, residual_dropout=0.0, summary_last_dropout=0.0, drop_path_rate=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WINDOW = dict(sliding_window=4)
MOE = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=1)
CAUSAL = {
    "GPT2LMHeadModel": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "LlamaForCausalLM": GQA,
    "MistralForCausalLM": dict(GQA, **WINDOW),
    "Qwen2ForCausalLM": GQA,
    "Qwen3ForCausalLM": dict(GQA, head_dim=8),
    "GemmaForCausalLM": dict(GQA, head_dim=8),
    "Gemma2ForCausalLM": dict(GQA, head_dim=8, **WINDOW),
    "Gemma3ForCausalLM": dict(GQA, head_dim=8, **WINDOW),
    "PhiForCausalLM": BASE,
    "Phi3ForCausalLM": GQA,
    "SmolLM3ForCausalLM": GQA,
    "OlmoForCausalLM": GQA,
    "GPTNeoXForCausalLM": BASE,
    "OPTForCausalLM": dict(BASE, ffn_dim=48, word_embed_proj_dim=32),
    "BloomForCausalLM": dict(vocab_size=64, hidden_size=32, n_layer=2, n_head=4),
    "FalconForCausalLM": BASE,
    "MambaForCausalLM": dict(vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4, time_step_rank=2),
    "Mamba2ForCausalLM": dict(vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4, num_heads=4, head_dim=8, n_groups=2, chunk_size=4),
    "RwkvForCausalLM": dict(vocab_size=64, hidden_size=16, num_hidden_layers=2, attention_hidden_size=16, intermediate_size=32, context_length=32),
    "MixtralForCausalLM": dict(GQA, **MOE),
    "Qwen3MoeForCausalLM": dict(GQA, head_dim=8, **MOE),
}
MASKED = {
    "BertForMaskedLM": BASE,
    "RobertaForMaskedLM": BASE,
    "DistilBertForMaskedLM": dict(vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=32),
    "AlbertForMaskedLM": dict(BASE, embedding_size=16),
    "ElectraForMaskedLM": dict(BASE, embedding_size=16),
    "DebertaV2ForMaskedLM": dict(BASE, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=16),
    "ModernBertForMaskedLM": dict(BASE, local_attention=4),
    "XLNetLMHeadModel": dict(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=48),
    "MPNetForMaskedLM": BASE,
}
VISION = {
    "ViTForImageClassification": (dict(BASE, image_size=32, patch_size=8), 32),
    "Dinov2ForImageClassification": (dict(BASE, image_size=28, patch_size=14), 28),
    "SwinForImageClassification": (dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4), 32),
    "ConvNextForImageClassification": (dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), 32),
    "SegformerForSemanticSegmentation": (dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[8, 16], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16), 32),
    "ResNetForImageClassification": (dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"), 32),
}


# Families beyond those, which nothing here was written for.
MORE = {
    "GraniteForCausalLM": GQA,
    "GraniteMoeForCausalLM": dict(GQA, **MOE),
    "StableLmForCausalLM": GQA,
    "CohereForCausalLM": GQA,
    "Cohere2ForCausalLM": dict(GQA, sliding_window=4),
    "DeepseekV2ForCausalLM": dict(BASE, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=16, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=1, n_group=1, topk_group=1),
    "DeepseekV3ForCausalLM": dict(BASE, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=16, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=1, n_group=2, topk_group=1, num_local_experts=4),
    "GlmForCausalLM": dict(GQA, head_dim=8),
    "Glm4ForCausalLM": dict(GQA, head_dim=8),
    "Starcoder2ForCausalLM": GQA,
    "MptForCausalLM": dict(vocab_size=64, d_model=32, n_heads=4, n_layers=2, max_seq_len=32),
    "CodeGenForCausalLM": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32, n_ctx=32, rotary_dim=4),
    "GPTJForCausalLM": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4),
    "GPTNeoForCausalLM": dict(vocab_size=64, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=32, attention_types=[[["global", "local"], 1]], window_size=4),
    "GPTBigCodeForCausalLM": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "NemotronForCausalLM": GQA,
    "Olmo2ForCausalLM": GQA,
    "OlmoeForCausalLM": dict(GQA, **MOE),
    "Exaone4ForCausalLM": dict(GQA, sliding_window=4),
    "HeliumForCausalLM": dict(GQA, head_dim=8),
    "PersimmonForCausalLM": BASE,
    "XGLMForCausalLM": dict(vocab_size=64, d_model=32, num_layers=2, attention_heads=4, ffn_dim=48, max_position_embeddings=32),
    "BioGptForCausalLM": BASE,
    "CTRLLMHeadModel": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, dff=48, n_positions=32),
    "OpenAIGPTLMHeadModel": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "GptOssForCausalLM": dict(GQA, head_dim=8, sliding_window=4, **MOE),
    "Llama4ForCausalLM": dict(GQA, head_dim=8, intermediate_size_mlp=48, attention_chunk_size=4, **MOE),
    "JambaForCausalLM": dict(GQA, use_mamba_kernels=False, mamba_d_state=4, mamba_dt_rank=2, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, **MOE),
    "FalconMambaForCausalLM": dict(vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4, time_step_rank=2),
    "BambaForCausalLM": dict(GQA, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=4, mamba_chunk_size=4, attn_layer_indices=[1]),
    "Zamba2ForCausalLM": dict(GQA, mamba_d_state=4, n_mamba_heads=4, mamba_headdim=16, mamba_ngroups=1, chunk_size=4, num_mem_blocks=1, hybrid_layer_ids=[1], layers_block_type=["mamba", "hybrid"]),
    "RecurrentGemmaForCausalLM": dict(vocab_size=64, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=32, num_key_value_heads=2, head_dim=8, lru_width=32, attention_window_size=8),
    "ArceeForCausalLM": GQA,
    "Lfm2ForCausalLM": dict(GQA, layer_types=["conv", "full_attention"], conv_L_cache=3),
    "Ernie4_5ForCausalLM": GQA,
    "SeedOssForCausalLM": dict(GQA, head_dim=8, residual_dropout=0.0),
    "ApertusForCausalLM": GQA,
    "DogeForCausalLM": GQA,
    "Qwen3NextForCausalLM": dict(GQA, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, shared_expert_intermediate_size=16, **MOE),
    "Gemma4ForCausalLM": dict(GQA, head_dim=8, sliding_window=4),
    "HunYuanDenseV1ForCausalLM": dict(GQA, head_dim=8),
    "MiniMaxForCausalLM": dict(GQA, head_dim=8, block_size=4, **MOE),
    "XLMRobertaXLForMaskedLM": BASE,
    "FunnelForMaskedLM": dict(vocab_size=64, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48, num_decoder_layers=1),
    "BigBirdForMaskedLM": dict(BASE, attention_type="original_full"),
    "FNetForMaskedLM": BASE,
    "DebertaForMaskedLM": dict(BASE, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=16),
    "NystromformerForMaskedLM": dict(BASE, segment_means_seq_len=8, num_landmarks=8),
    "SqueezeBertForMaskedLM": dict(BASE, embedding_size=32, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2, output_groups=2),
    "MobileBertForMaskedLM": dict(BASE, embedding_size=16, intra_bottleneck_size=32, true_hidden_size=32),
    "MegatronBertForMaskedLM": BASE,
    "RoFormerForMaskedLM": dict(BASE, embedding_size=32),
    "ConvBertForMaskedLM": dict(BASE, embedding_size=16, conv_kernel_size=3, head_ratio=2),
    "LayoutLMForMaskedLM": BASE,
    "EsmForMaskedLM": dict(BASE, position_embedding_type="rotary", mask_token_id=3),
    "CamembertForMaskedLM": BASE,
    "ErnieForMaskedLM": BASE,
    "NomicBertForMaskedLM": BASE,
    "LukeForMaskedLM": dict(BASE, entity_vocab_size=8, entity_emb_size=16),
    "PerceiverForMaskedLM": dict(vocab_size=64, num_latents=4, d_latents=16, d_model=16, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4, num_cross_attention_heads=4, max_position_embeddings=8),
}
MORE_VISION = {
    "DeiTForImageClassification": (dict(BASE, image_size=32, patch_size=8), 32),
    "BeitForImageClassification": (dict(BASE, image_size=32, patch_size=8, use_relative_position_bias=True), 32),
    "PvtV2ForImageClassification": (dict(image_size=32, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 16], num_attention_heads=[1, 2, 2, 2], mlp_ratios=[2, 2, 2, 2]), 32),
    "MobileViTForImageClassification": (dict(image_size=64, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 16], num_attention_heads=2), 64),
    "MobileViTV2ForImageClassification": (dict(image_size=64, width_multiplier=0.25), 64),
    "RegNetForImageClassification": (dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4), 32),
    "DPTForDepthEstimation": (dict(vocab_size=64, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48, max_position_embeddings=32, image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 8, 8], fusion_hidden_size=8, is_hybrid=False), 32),
    "PoolFormerForImageClassification": (dict(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16]), 32),
    "ConvNextV2ForImageClassification": (dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), 32),
    "MobileNetV1ForImageClassification": (dict(image_size=32, depth_multiplier=0.25), 32),
    "MobileNetV2ForImageClassification": (dict(image_size=32, depth_multiplier=0.25), 32),
    "BitForImageClassification": (dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_groups=2), 32),
    "FocalNetForImageClassification": (dict(image_size=32, embed_dim=8, hidden_sizes=[8, 16], depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3]), 32),
    "Swinv2ForImageClassification": (dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4), 32),
    "ViTMSNForImageClassification": (dict(BASE, image_size=32, patch_size=8), 32),
    "Dinov2WithRegistersForImageClassification": (dict(BASE, image_size=28, patch_size=14), 28),
    "HieraForImageClassification": (dict(image_size=[32, 32], embed_dim=8, depths=[1, 1], num_heads=[1, 2], mlp_ratio=2.0, num_query_pool=1, masked_unit_size=[4, 4]), 32),
    "TextNetForImageClassification": (dict(), 64),
    "GLPNForDepthEstimation": (dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[8, 16], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=8), 32),
    "SwiftFormerForImageClassification": (dict(image_size=32, depths=[1, 1, 1, 1], embed_dims=[8, 8, 16, 16], mlp_ratio=2), 32),
}


def transformers_models():
    import transformers as tf
    import transformers.integrations.moe as moe

    moe._can_use_grouped_mm = lambda *_: False  # PyTorch's grouped product knows no float64; transformers' own does

    def make(name, settings):
        kind = getattr(tf, name)
        known = {**OFF, **settings}
        config = kind.config_class(**known)
        torch.manual_seed(0)
        net = no_dropout(kind(config))
        for m in net.modules():
            if hasattr(m, "_requires_grad"):  # wav2vec2 sets the flag of a tensor inside forward, which is not exported
                m._requires_grad = False
        return net

    def logits(m, *xs):
        y = m.net(*xs)
        return y.logits if "logits" in y else y[0]

    for name, settings in {**CAUSAL, **MASKED, **MORE}.items():
        yield name, lambda name=name, settings=settings: (Call(logits, net=make(name, settings)), (ids(64),))

    def two(name, settings, fn, *xs):
        return lambda: (Call(fn, net=make(name, settings)), xs)

    t5 = dict(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, decoder_start_token_id=0)
    yield "T5ForConditionalGeneration", two("T5ForConditionalGeneration", t5, lambda m, x, y: m.net(input_ids=x, decoder_input_ids=y).logits, ids(64), ids(64, 2, 6))
    bart = dict(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32, decoder_start_token_id=2)
    yield "BartForConditionalGeneration", two("BartForConditionalGeneration", bart, lambda m, x, y: m.net(input_ids=x, decoder_input_ids=y).logits, ids(64), ids(64, 2, 6))
    whisper = dict(bart, num_mel_bins=8, max_source_positions=8, max_target_positions=16)
    whisper.pop("max_position_embeddings")
    yield "WhisperForConditionalGeneration", two("WhisperForConditionalGeneration", whisper, lambda m, x, y: m.net(input_features=x, decoder_input_ids=y).logits, torch.rand(2, 8, 16), ids(64, 2, 6))
    w2v = dict(vocab_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=[8, 8], conv_stride=[4, 2], conv_kernel=[8, 3], num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, apply_spec_augment=False, feat_proj_dropout=0.0, final_dropout=0.0)
    yield "Wav2Vec2ForCTC", two("Wav2Vec2ForCTC", w2v, logits, torch.rand(2, 160))
    clip = dict(text_config=dict(BASE, attention_dropout=0.0), vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8), projection_dim=16)
    yield "CLIPModel", two("CLIPModel", clip, lambda m, x, p: m.net(input_ids=x, pixel_values=p).logits_per_image, ids(64), image(2, 32))
    for name in ("HubertForCTC", "Data2VecAudioForCTC", "WavLMForCTC", "UniSpeechForCTC", "SEWForCTC", "Wav2Vec2ConformerForCTC"):
        yield name, two(name, dict(w2v, squeeze_factor=2) if name == "SEWForCTC" else w2v, logits, torch.rand(2, 160))
    for name in ("PegasusForConditionalGeneration", "MBartForConditionalGeneration", "MarianMTModel", "BlenderbotForConditionalGeneration", "M2M100ForConditionalGeneration", "MT5ForConditionalGeneration", "UMT5ForConditionalGeneration"):
        yield name, two(name, t5 if "T5" in name else bart, lambda m, x, y: m.net(input_ids=x, decoder_input_ids=y).logits, ids(64), ids(64, 2, 6))
    for name, (settings, side) in {**VISION, **MORE_VISION}.items():
        yield name, lambda name=name, settings=settings, side=side: (Call(logits, net=make(name, settings)), (image(2, side),))


# ---- others

def other_models():
    def tokens(rnn):
        return lambda m, x: m.o(m.r(m.e(x))[0])

    def recurrent(kind, **more):
        wide = 8 * (2 if more.get("bidirectional") else 1)
        return lambda: (Call(tokens(kind), e=nn.Embedding(17, 6), r=kind(6, 8, batch_first=True, **more), o=nn.Linear(wide, 17)), (ids(17),))

    yield "LSTM", recurrent(nn.LSTM, num_layers=2)
    yield "LSTM bidirectional", recurrent(nn.LSTM, bidirectional=True)
    yield "GRU", recurrent(nn.GRU, num_layers=2)
    yield "RNN", recurrent(nn.RNN)

    def cell(m, x):
        h = c = torch.zeros(x.shape[0], 5)
        for t in range(x.shape[1]):
            h, c = m.c(x[:, t], (h, c))
        return h
    yield "LSTM cell", lambda: (Call(cell, c=nn.LSTMCell(4, 5)), (torch.randn(2, 3, 4),))

    def gru_cell(m, x):
        h = torch.zeros(x.shape[0], 5)
        for t in range(x.shape[1]):
            h = m.c(x[:, t], h)
        return h
    yield "GRU cell", lambda: (Call(gru_cell, c=nn.GRUCell(4, 5)), (torch.randn(2, 3, 4),))

    def dcgan():
        g = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh())
        d = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, True), nn.Conv2d(16, 1, 4), nn.Flatten())
        return Call(lambda m, z: F.binary_cross_entropy_with_logits(m.d(m.g(z)), torch.ones(2, 1)), g=g, d=d), (torch.randn(2, 8, 1, 1),)
    yield "DCGAN", dcgan
    yield "U-Net", lambda: (goldens.UNet(), (image(2, 8, 1),))

    def vae():
        def forward(m, x, noise):
            mean, spread = m.e(x).chunk(2, 1)
            y = m.d(mean + noise * torch.exp(0.5 * spread))
            return F.binary_cross_entropy(y, x, reduction="sum") - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
        return Call(forward, e=nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6)), d=nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12), nn.Sigmoid())), (torch.rand(4, 12), torch.randn(4, 3))
    yield "VAE", vae

    class Block(nn.Module):
        def __init__(self, i, o, d):
            super().__init__()
            self.d, self.c = d, nn.utils.parametrizations.weight_norm(nn.Conv1d(i, o, 3, dilation=d))
            self.skip = nn.Conv1d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x):
            return F.relu(self.c(F.pad(x, (2 * self.d, 0))) + self.skip(x))
    yield "TCN", lambda: (nn.Sequential(Block(3, 8, 1), Block(8, 8, 2), Block(8, 8, 4)), (torch.randn(2, 3, 16),))

    def gcn(m, x, edges):
        src, dst = edges[0], edges[1]
        for layer in (m.a, m.b):
            degree = torch.zeros(x.shape[0]).index_add(0, dst, torch.ones(dst.shape[0])).clamp(min=1)
            x = F.relu(layer(torch.zeros_like(x).index_add(0, dst, x[src]) / degree[:, None]))
        return x
    yield "GCN", lambda: (Call(gcn, a=nn.Linear(6, 6), b=nn.Linear(6, 3)), (torch.randn(7, 6), torch.randint(0, 7, (2, 12))))

    def scatter_gcn(m, x, edges):
        y = m.a(x)
        return torch.zeros_like(y).scatter_add(0, edges[1][:, None].expand(-1, y.shape[1]), y[edges[0]])
    yield "GCN scatter_add", lambda: (Call(scatter_gcn, a=nn.Linear(6, 3)), (torch.randn(7, 6), torch.randint(0, 7, (2, 12))))

    def dlrm(m, dense, sparse):
        x = [m.bottom(dense)] + [e(sparse[:, k : k + 1]) for k, e in enumerate(m.tables)]
        z = torch.stack(x, 1)
        inter = torch.bmm(z, z.transpose(1, 2))
        i, j = torch.tril_indices(z.shape[1], z.shape[1], offset=-1)
        return m.top(torch.cat([x[0], inter[:, i, j]], 1))
    yield "DLRM", lambda: (Call(dlrm, bottom=nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU()), tables=nn.ModuleList([nn.EmbeddingBag(9, 4, mode="sum") for _ in range(3)]), top=nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))), (torch.randn(4, 5), torch.randint(0, 9, (4, 3))))

    def nerf(m, rays, depth):
        at = rays[:, None, :3] + rays[:, None, 3:] * depth[..., None]
        code = torch.cat([f(at * 2.0**k) for k in range(4) for f in (torch.sin, torch.cos)], -1)
        y = m.n(code)
        alpha = 1 - torch.exp(-F.relu(y[..., 3]) * torch.cat([depth.diff(dim=1), torch.full_like(depth[:, :1], 1e10)], 1))
        light = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        return ((alpha * light)[..., None] * torch.sigmoid(y[..., :3])).sum(1)
    yield "NeRF", lambda: (Call(nerf, n=nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 4))), (torch.randn(3, 6), torch.rand(3, 5).sort(1).values))


SETS = dict(other=other_models, torchvision=torchvision_models, transformers=transformers_models)


class Doubled:
    """Code that computes parts in float32 computes them in float64, so that rounding is no difference."""

    def __enter__(self):
        self.kept = torch.float32, torch.float, torch.Tensor.float
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = lambda x, *a, **k: x.double()

    def __exit__(self, *e):
        torch.float32, torch.float, torch.Tensor.float = self.kept


def measure(name, make, o):
    folder = os.path.join(o.folder, re.sub(r"\W", "_", name))
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    began = time.time()
    archive = os.path.join(folder, "m.pt2")
    if not (o.keep and os.path.exists(archive) and os.path.exists(archive[:-3] + "safetensors")):
        try:
            with Doubled():
                model, inputs = make()
                model.train()
                if not goldens.write(folder, "m", model, inputs):
                    return "PyTorch does not export it", "", ""
        except Exception as e:
            return "PyTorch does not run it: " + (str(e) or type(e).__name__).splitlines()[0][:100], "", ""
    try:
        done = subprocess.run([o.test], env=dict(os.environ, AN_IMPORT_GOLDENS=folder), capture_output=True, text=True, timeout=o.timeout)
    except subprocess.TimeoutExpired:
        return f"over {o.timeout} s", "", ""
    says = [l[2:] for l in done.stdout.splitlines() if l.startswith("# ")]
    worst = next((l.split()[-1] for l in says if "the worst by" in l), "")
    refusal = next((l for l in says if "operations are not there" in l or "not there" in l), "")
    missing = ", ".join(sorted(set(re.findall(r"(?:aten|transformers|torchvision|higher_order|_operator|math)\.[\w.]+", refusal))))
    other = next((l for l in says if not l.startswith("m ") and "the worst by" not in l and "agree" not in l), "")
    verdict = "yes" if done.returncode == 0 else "differs" if worst and not missing else "no"
    note = missing or ("" if verdict == "yes" else other[:300] or f"code {done.returncode}")
    print(f"{name}: {verdict} {worst} {note} ({time.time() - began:.0f} s)", flush=True)
    return verdict, worst, note


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("test")
    p.add_argument("--only", default="")
    p.add_argument("--set", default="")
    p.add_argument("--keep", action="store_true", help="archives that are there are not exported again")
    p.add_argument("--timeout", type=int, default=300)
    p.add_argument("--table", default="")
    o = p.parse_args()
    rows = []
    declare_detection()
    for kind, models in SETS.items():
        for name, make in models() if o.set in kind else ():
            if o.only.lower() in name.lower():
                verdict, worst, note = measure(name, make, o)
                if verdict not in ("yes", "no", "differs"):
                    print(f"{name}: {verdict}", flush=True)
                rows.append((kind, name, verdict, worst, note))
    print(f"{sum(r[2] == 'yes' for r in rows)} of {len(rows)} families")
    if o.table:
        with open(o.table, "w") as f:
            f.write("| set | family | imported | largest difference | missing |\n| --- | --- | --- | --- | --- |\n")
            f.writelines("| " + " | ".join(r) + " |\n" for r in rows)


main()

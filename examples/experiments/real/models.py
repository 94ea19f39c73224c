"""Real models, built from their libraries' own definitions with random weights, for `schedopt import` and what follows.

usage, in this folder: schedopt import models:pnasnet5large --output pnasnet.pb.gz

Needs `pip install timm diffusers transformers`; nothing is downloaded. Each function returns a model and the
arguments of one call, as `schedopt` takes them from any `module:function`, the same ones at every call. Models
whose name ends in `_training` are in training mode and return their loss.
"""

import torch


def pnasnet5large():
    """PNASNet-5 large: cells found by progressive search, 331 x 331 pixels."""
    return _timm("pnasnet5large", batch=2, pixels=331)


def nasnetalarge():
    """NASNet-A large: cells found by reinforcement learning, 331 x 331 pixels."""
    return _timm("nasnetalarge", batch=2, pixels=331)


def densenet121():
    """DenseNet-121."""
    return _timm("densenet121", batch=8)


def hrnet_w18_small():
    """HRNet: four resolutions beside each other."""
    return _timm("hrnet_w18_small", batch=8)


def efficientnet_b0():
    """EfficientNet-B0: inverted residuals with squeeze and excitation."""
    return _timm("efficientnet_b0", batch=8)


def ddpm_unet():
    """The U-Net of denoising diffusion, small, four images."""
    return _ddpm_unet(batch=4)


def stable_diffusion_unet():
    """The U-Net of Stable Diffusion with its cross-attention to the text, narrowed to 96 channels and up."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    model = UNet2DConditionModel(
        sample_size=64, block_out_channels=(96, 192, 384, 384), cross_attention_dim=768, attention_head_dim=8
    )
    text = torch.randn(1, 77, 768)
    inputs = {
        "sample": torch.randn(1, 4, 64, 64),
        "timestep": torch.tensor(10),
        "encoder_hidden_states": text,
        "return_dict": False,
    }
    return model.eval(), inputs


def t5_small():
    """T5 small: encoder and decoder, 512 tokens in and 128 out."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, use_cache=False, decoder_start_token_id=0)
    words, answer = _tokens(config.vocab_size, 1, 512), _tokens(config.vocab_size, 1, 128)
    return T5ForConditionalGeneration(config).eval(), {"input_ids": words, "decoder_input_ids": answer}


def llama():
    """A Llama of 8 layers, 1024 tokens."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    config = _llama_config()
    return LlamaForCausalLM(config).eval(), {"input_ids": _tokens(config.vocab_size, 1, 1024)}


def mamba():
    """Mamba: a state space model, whose recurrence is unrolled over 64 tokens."""
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=4, use_cache=False, use_mambapy=False)
    return MambaForCausalLM(config).eval(), {"input_ids": _tokens(config.vocab_size, 4, 64)}


def resnet50_training():
    """ResNet-50."""
    return _timm_training("resnet50", batch=2)


def regnet_training():
    """RegNetY-4GF: residual blocks with squeeze and excitation, from a parametrised design space."""
    return _timm_training("regnety_040", batch=2)


def convnext_tiny_training():
    """ConvNeXt tiny."""
    return _timm_training("convnext_tiny", batch=2)


def swin_tiny_training():
    """Swin transformer tiny: attention in shifted windows."""
    return _timm_training("swin_tiny_patch4_window7_224", batch=2)


def vit_small_training():
    """Vision transformer small, 16 x 16 patches."""
    return _timm_training("vit_small_patch16_224", batch=2)


def gpt2_training():
    """GPT-2 small: 12 layers, 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(use_cache=False)
    words = _tokens(config.vocab_size, 1, 128)
    return GPT2LMHeadModel(config).train(), {"input_ids": words, "labels": words}


def bert_training():
    """BERT base, masked language model, 128 tokens."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig()
    words = _tokens(config.vocab_size, 1, 128)
    return BertForMaskedLM(config).train(), {"input_ids": words, "labels": words}


def llama_training():
    """A Llama of 8 layers, 128 tokens."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    config = _llama_config()
    words = _tokens(config.vocab_size, 1, 128)
    return LlamaForCausalLM(config).train(), {"input_ids": words, "labels": words}


def bilstm_training():
    """Two layers of bidirectional LSTM cells over 32 steps."""
    torch.manual_seed(0)
    return BidirectionalLSTM(128, layers=2).train(), (torch.randn(32, 8, 128), torch.randn(32, 8, 256))


def ddpm_unet_training():
    """The U-Net of denoising diffusion, small, two images."""
    model, inputs = _ddpm_unet(batch=2)
    return model.train(), inputs


class WithLoss(torch.nn.Module):
    """A classifier with its cross-entropy."""

    def __init__(self, classifier):
        super().__init__()
        self.classifier = classifier

    def forward(self, images, labels):
        return torch.nn.functional.cross_entropy(self.classifier(images), labels)


class BidirectionalLSTM(torch.nn.Module):
    """Layers of two LSTMs, one from each end, unrolled; its loss is the squared distance to what is wanted."""

    def __init__(self, width, layers):
        super().__init__()
        sizes = [width] + [2 * width] * (layers - 1)
        self.forwards = torch.nn.ModuleList(torch.nn.LSTMCell(size, width) for size in sizes)
        self.backwards = torch.nn.ModuleList(torch.nn.LSTMCell(size, width) for size in sizes)

    def forward(self, steps, wanted):
        for left, right in zip(self.forwards, self.backwards, strict=True):
            there, back = self.run(left, steps), self.run(right, steps.flip(0)).flip(0)
            steps = torch.cat([there, back], dim=2)
        return torch.nn.functional.mse_loss(steps, wanted)

    @staticmethod
    def run(cell, steps):
        state, hidden = None, []
        for step in steps:
            state = cell(step, state)
            hidden.append(state[0])
        return torch.stack(hidden)


def _timm(name, batch, pixels=224):
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False).eval(), (torch.randn(batch, 3, pixels, pixels),)


def _timm_training(name, batch):
    model, (images,) = _timm(name, batch)
    return WithLoss(model).train(), (images, torch.randint(0, 1000, (batch,)))


def _ddpm_unet(batch):
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    model = UNet2DModel(sample_size=64, block_out_channels=(64, 128, 128, 256), norm_num_groups=32)
    sample = torch.randn(batch, 3, 64, 64)
    return model.eval(), {"sample": sample, "timestep": torch.tensor(10), "return_dict": False}


def _tokens(vocabulary, batch, length):
    return torch.randint(0, vocabulary, (batch, length))


def _llama_config():
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )

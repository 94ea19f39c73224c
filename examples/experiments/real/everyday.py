"""Twenty programs as people bring them: own code, timm, transformers, diffusers; inference and training.

Between them: half precision, autocast, checkpointed blocks, tied weights, dropout, batch statistics, writes in place,
keywords, results that are a dict or a dataclass. Each function returns a model and the arguments of one call, as
`schedopt` takes them from any `module:function`; models whose name ends in `_training` return their loss. Those of
timm, transformers and diffusers need these packages; nothing is downloaded.
"""

import dataclasses

import torch
from models import BidirectionalLSTM, WithLoss
from torch import nn
from torch.nn import functional as f
from torch.utils.checkpoint import checkpoint

NAMES = (
    "unet",
    "unet_training",
    "gpt_bf16",
    "gpt_training",
    "gpt_autocast_training",
    "gpt_checkpointed_training",
    "inception",
    "inception_training",
    "two_towers",
    "bilstm_training",
    "densenet",
    "hrnet",
    "resnet_training",
    "vit_training",
    "t5",
    "llama",
    "gpt2_training",
    "bert_training",
    "ddpm",
    "ddpm_training",
)


class Block(nn.Module):
    """Two convolutions, each normed, with a relu in place."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.one, self.two = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm_one, self.norm_two = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = self.norm_one(self.one(x)).relu_()
        return self.norm_two(self.two(x)).relu_()


class UNet(nn.Module):
    """Down and up again, with what was there on the way down beside it."""

    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down = nn.ModuleList(Block(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.merge = nn.ModuleList(Block(2 * a, a) for a in widths[-2::-1])
        self.head = nn.Conv2d(widths[0], 4, 1)

    def forward(self, image, target=None):
        kept = []
        for block in self.down:
            image = block(image)
            kept.append(image)
            image = f.max_pool2d(image, 2)
        image = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            image = merge(torch.cat([kept.pop(), up(image)], 1))
        scores = self.head(image)
        return scores if target is None else f.cross_entropy(scores, target)


class Layer(nn.Module):
    """Attention and a feed-forward part, with dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        split = self.queries(self.norm_one(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(2)
        x = x + f.dropout(self.output(mixed), 0.1, self.training)
        return x + f.dropout(self.down(f.gelu(self.up(self.norm_two(x)))), 0.1, self.training)


class GPT(nn.Module):
    """A language model whose output shares the weight of its embedding."""

    def __init__(self, width=256, layers=4, words=4000, *, checkpointed=False, autocast=False):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(256, width)
        self.layers = nn.ModuleList(Layer(width, 8) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.checkpointed, self.autocast = checkpointed, autocast

    def forward(self, tokens, *, labels=None):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
            scores = self.head(self.norm(x))
            if labels is None:
                return {"scores": scores, "last": x}
            return {"loss": f.cross_entropy(scores.flatten(0, 1).float(), labels.flatten()), "scores": scores}


class Inception(nn.Module):
    """Blocks of four branches each, wide ones before narrow ones."""

    def __init__(self, blocks=4, width=48):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.wide = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(width, 3 * width, size, padding=size // 2) for size in (1, 3, 3, 5))
            for _ in range(blocks)
        )
        self.narrow = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(3 * width, width // 4, 1) for _ in range(4)) for _ in range(blocks)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, image):
        x = self.stem(image)
        for wide, narrow, norm in zip(self.wide, self.narrow, self.norms, strict=True):
            branches = [layer(x).relu_() for layer in wide]
            x = norm(torch.cat([layer(branch) for layer, branch in zip(narrow, branches, strict=True)], 1))
        return self.head(x.mean((2, 3)))


@dataclasses.dataclass
class Match:
    """What two towers return."""

    score: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor


class TwoTowers(nn.Module):
    """Text and image, each through layers of its own, compared at the end; the result is a dataclass."""

    def __init__(self):
        super().__init__()
        self.text = nn.Sequential(nn.Embedding(1000, 128), nn.LSTM(128, 128, batch_first=True))
        self.image, self.last = UNet((8, 16, 32)), nn.Linear(4, 128)

    def forward(self, *, image, words):
        _, (state, _) = self.text(words)
        left = self.last(self.image(image).mean((2, 3)))
        right = state[-1]
        return Match((left * right).sum(1), left, right)


def unet():
    """A U-Net, 96 x 96 pixels."""
    torch.manual_seed(0)
    return UNet().eval(), torch.randn(4, 3, 96, 96)


def unet_training():
    """The same with its cross-entropy."""
    torch.manual_seed(0)
    return UNet().train(), {"image": torch.randn(4, 3, 96, 96), "target": torch.randint(0, 4, (4, 96, 96))}


def gpt_bf16():
    """A GPT of four layers in half precision."""
    torch.manual_seed(0)
    return GPT().eval().bfloat16(), torch.randint(0, 4000, (4, 128))


def gpt_training():
    """The same in full precision, with dropout and tied weights."""
    return _gpt_training(GPT)


def gpt_autocast_training():
    """The same under autocast."""
    return _gpt_training(lambda: GPT(autocast=True))


def gpt_checkpointed_training():
    """The same with every layer computed again in the backward pass."""
    return _gpt_training(lambda: GPT(checkpointed=True))


def inception():
    """A network of branches, 64 x 64 pixels."""
    torch.manual_seed(0)
    return Inception().eval(), (torch.randn(8, 3, 64, 64),)


def inception_training():
    """The same with its cross-entropy, and batch statistics."""
    torch.manual_seed(0)
    return WithLoss(Inception()).train(), (torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,)))


def two_towers():
    """Keywords in, a dataclass out."""
    torch.manual_seed(0)
    return TwoTowers().eval(), {"image": torch.randn(4, 3, 64, 64), "words": torch.randint(0, 1000, (4, 32))}


def bilstm_training():
    """Two layers of bidirectional LSTM cells over 24 steps."""
    torch.manual_seed(0)
    return BidirectionalLSTM(64, layers=2).train(), (torch.randn(24, 8, 64), torch.randn(24, 8, 128))


def densenet():
    """DenseNet-121 of timm."""
    return _timm("densenet121", 4)


def hrnet():
    """HRNet of timm: four resolutions beside each other."""
    return _timm("hrnet_w18_small", 4)


def resnet_training():
    """ResNet-50 of timm."""
    return _timm_training("resnet50")


def vit_training():
    """A vision transformer of timm, tiny."""
    return _timm_training("vit_tiny_patch16_224", img_size=112)


def t5():
    """T5 of transformers, small: encoder and decoder."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=4000, d_model=256, d_ff=1024, num_layers=4, num_heads=8, use_cache=False, decoder_start_token_id=0
    )
    inputs = {"input_ids": torch.randint(0, 4000, (2, 128)), "decoder_input_ids": torch.randint(0, 4000, (2, 64))}
    return T5ForConditionalGeneration(config).eval(), inputs


def llama():
    """A Llama of transformers, four layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 4000, (2, 256))}


def gpt2_training():
    """GPT-2 of transformers, four layers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=4000, n_embd=256, n_layer=4, n_head=8, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    words = torch.randint(0, 4000, (2, 128))
    return GPT2LMHeadModel(config).train(), {"input_ids": words, "labels": words}


def bert_training():
    """BERT of transformers, four layers, masked language model."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=4000, hidden_size=256, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024
    )
    words = torch.randint(0, 4000, (2, 128))
    return BertForMaskedLM(config).train(), {"input_ids": words, "labels": words}


def ddpm():
    """The U-Net of denoising diffusion, of diffusers."""
    return _ddpm(2)


def ddpm_training():
    """The same with its squared error."""
    model, inputs = _ddpm(2)
    return Denoiser(model).train(), (inputs["sample"], inputs["timestep"], torch.randn_like(inputs["sample"]))


class Denoiser(nn.Module):
    """A network that predicts noise, with its squared error."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, sample, step, noise):
        return f.mse_loss(self.network(sample, step, return_dict=False)[0], noise)


def _gpt_training(make):
    torch.manual_seed(0)
    words = torch.randint(0, 4000, (4, 128))
    return make().train(), {"tokens": words, "labels": words.roll(-1, 1)}


def _timm(name, batch, pixels=128, **settings):
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, **settings).eval(), (torch.randn(batch, 3, pixels, pixels),)


def _timm_training(name, **settings):
    model, (images,) = _timm(name, 4, 112, **settings)
    return WithLoss(model).train(), (images, torch.randint(0, 1000, (4,)))


def _ddpm(batch):
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    model = UNet2DModel(sample_size=32, block_out_channels=(32, 64, 64, 128), norm_num_groups=32)
    inputs = {"sample": torch.randn(batch, 3, 32, 32), "timestep": torch.tensor(10), "return_dict": False}
    return model.eval(), inputs

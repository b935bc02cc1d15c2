# mlx_gpt.py: how long an update of a GPT takes in MLX, for a lane of `anneal decide`. Arguments: a run's settings as JSON, how many updates, and the
# seconds after which it stops where four are timed.
# The last line of the output is JSON with the milliseconds of each update, or, with exit code 3, a sentence: why it cannot be timed.
# The model is GPT-2's as docs say it: the same shapes, the same work; weights and tokens are random, as only time is asked for.
import sys

sys.path = [p for p in sys.path if p]  # no module of the folder in which the command was typed


def leave_out(why):
    print(why)
    sys.exit(3)


try:
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim
    from mlx.utils import tree_map
except ImportError as e:
    leave_out("python3 has no package mlx" if "mlx" == (e.name or "").split(".")[0] else "its Python package does not load: %s" % e)

import functools
import json
import math
import time

s = json.loads(sys.argv[1])
updates, seconds = int(sys.argv[2]), float(sys.argv[3])
if "n_layer" not in s:
    leave_out("its Python package is here, but only GPT is written for it")
if s["optimizer"] not in ("adamw", "adam"):
    leave_out("its Python package is here, but not optimizer=%s" % s["optimizer"])
B, T, C, H, V = s["batch_size"], s["block_size"], s["n_embd"], s["n_head"], s["vocab_size"]
half = {"bfloat16": mx.bfloat16, "float16": mx.float16}.get(s["dtype"])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        bias = s["bias"]
        self.ln_1, self.ln_2 = nn.LayerNorm(C, bias=bias), nn.LayerNorm(C, bias=bias)
        self.attn, self.attn_proj = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)
        self.fc, self.proj = nn.Linear(C, 4 * C, bias=bias), nn.Linear(4 * C, C, bias=bias)
        self.drop = nn.Dropout(s["dropout"])

    def attention(self, q, k, v):
        if s["dropout"] == 0:
            return mx.fast.scaled_dot_product_attention(q, k, v, scale=1 / math.sqrt(C // H), mask="causal")
        score = (q @ k.transpose(0, 1, 3, 2)) / math.sqrt(C // H)
        score = mx.where(mx.tri(T, dtype=mx.bool_), score, mx.array(-1e9, score.dtype))
        return self.drop(mx.softmax(score.astype(mx.float32), axis=-1).astype(v.dtype)) @ v

    def __call__(self, x):  # [B,T,C]
        q, k, v = (y.reshape(B, T, H, C // H).transpose(0, 2, 1, 3) for y in mx.split(self.attn(self.ln_1(x)), 3, axis=-1))
        y = self.attention(q, k, v).transpose(0, 2, 1, 3).reshape(B, T, C)
        x = x + self.drop(self.attn_proj(y))
        gelu = nn.gelu_approx if s["gelu"] == "tanh" else nn.gelu
        return x + self.drop(self.proj(gelu(self.fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.h = [Block() for _ in range(s["n_layer"])]
        self.ln_f = nn.LayerNorm(C, bias=s["bias"])
        self.drop = nn.Dropout(s["dropout"])

    def __call__(self, tokens):  # [B,T]
        x = self.drop(self.wte(tokens) + self.wpe(mx.arange(T)))
        for block in self.h:
            x = block(x)
        return self.wte.as_linear(self.ln_f(x))


def loss(parameters, tokens, labels):
    model.update(tree_map(lambda p: p.astype(half), parameters) if half else parameters)
    value = nn.losses.cross_entropy(model(tokens).astype(mx.float32), labels, reduction="mean")
    model.update(parameters)
    return value


model = GPT()
model.train()
optimizer = optim.AdamW(s["learning_rate"], betas=[s["beta1"], s["beta2"]], weight_decay=s["weight_decay"])
optimizer.init(model.trainable_parameters())
state = [model.state, optimizer.state, mx.random.state]
mx.eval(state)


@functools.partial(mx.compile, inputs=state, outputs=state)
def update(tokens, labels):  # [A,B,T]
    sum_of_grads, sum_of_losses = None, 0
    for i in range(s["gradient_accumulation_steps"]):
        value, grads = mx.value_and_grad(loss)(model.trainable_parameters(), tokens[i], labels[i])
        sum_of_losses = sum_of_losses + value
        sum_of_grads = grads if sum_of_grads is None else tree_map(mx.add, sum_of_grads, grads)
    if s["grad_clip"] > 0:
        sum_of_grads, _ = optim.clip_grad_norm(sum_of_grads, s["grad_clip"])
    optimizer.update(model, sum_of_grads)
    return sum_of_losses


ms = []
start = time.perf_counter()
for i in range(updates):
    batch = mx.random.randint(0, V, (s["gradient_accumulation_steps"], B, T + 1))
    mx.eval(batch)
    began = time.perf_counter()
    value = update(batch[:, :, :-1], batch[:, :, 1:])
    mx.eval(value, state)
    ms.append(round(1e3 * (time.perf_counter() - began), 4))
    if len(ms) >= 4 and time.perf_counter() - start > seconds:
        break
if not math.isfinite(value.item()):
    leave_out("its Python package is here, but its loss is not finite after %d updates" % len(ms))
print(json.dumps({"ms": ms, "device": str(mx.default_device()), "version": mx.__version__}))

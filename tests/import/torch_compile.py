"""torch.compile(backend="anneal") beside PyTorch: results, gradients and buffers of small models in float64. torch_tests.py runs
it."""
import copy
import ctypes
import gc
import pathlib
import re

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal.torch
from anneal import _library

TESTS = []


def test(f):
    TESTS.append(f)
    return f


def compiled(model, **more):
    torch._dynamo.reset()
    return torch.compile(model, backend="anneal", **more)


def compare(model, *inputs, limit=1e-9, steps=2):
    """Both models take the same steps: results, gradients, buffers and, after the update, parameters."""
    mine = copy.deepcopy(model)
    run, pairs = compiled(mine), []
    for theirs, f in ((model, model), (mine, run)):
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = f(*inputs)
            loss = loss if loss.dim() == 0 else (loss * torch.linspace(-1, 1, loss.numel()).view(loss.shape)).sum()
            loss.backward()
            optimizer.step()
        pairs.append([loss.detach(), *(p.grad for p in theirs.parameters()), *(p.detach() for p in theirs.parameters()),
                      *(b for b in theirs.buffers())])
    scale = max(float(p.abs().max()) for p in pairs[0])
    for a, b in zip(*pairs):
        apart = float((a.double() - b.double()).abs().max()) / scale
        assert apart <= limit, f"{apart:.1e} apart, {limit:.0e} is allowed"


@test
def a_perceptron_with_a_norm_is_pytorchs():
    compare(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(5, 8))


@test
def one_tensor_as_query_key_and_value_has_one_gradient():
    class Same(nn.Module):
        def __init__(self, pick):
            super().__init__()
            self.x, self.pick = nn.Parameter(torch.randn(1, 2, 3, 4)), pick

        def forward(self):
            return F.scaled_dot_product_attention(*self.pick(self.x))

    for pick in (lambda x: (x, x, x), lambda x: (x, x, 2 * x), lambda x: (2 * x, x, x), lambda x: (x, 2 * x, x)):
        compare(Same(pick))


@test
def convolutions_pools_and_batch_norm_are_pytorchs():
    for bias in (True, False):  # 1x1 over planes as they are, then channels last
        compare(nn.Sequential(nn.Conv2d(5, 9, 1, bias=bias), nn.ReLU(), nn.Conv2d(9, 4, 3), nn.Conv2d(4, 7, 1)), torch.randn(2, 5, 6, 7))
    compare(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                          nn.Conv2d(8, 8, 3, groups=2, stride=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)), torch.randn(5, 3, 20, 20))


@test
def arguments_are_named_as_this_version_of_pytorch_names_them():
    table = (pathlib.Path(__file__).parents[2] / "src/import/aten.def").read_text()
    rows, wrong = 0, []
    for name, schema in re.findall(r'^AN_ATEN\("(aten\.[^"]+)", \w+, \w+, "([^"]*)"', table, re.MULTILINE):
        _, op, overload = name.split(".")
        packet = getattr(torch.ops.aten, op, None)
        if packet is None or overload not in packet.overloads():
            continue  # of another version
        rows += 1
        arguments = getattr(packet, overload)._schema.arguments
        theirs, by_name = [a.name for a in arguments], {a.name for a in arguments if a.kwarg_only}
        for at, word in enumerate(schema.split()):
            names, default = word.split("=")[0].split("/"), "=" in word
            if not any(n in by_name or at < len(theirs) and n == theirs[at] for n in names) and not (default and not any(n in theirs for n in names)):
                wrong.append(f"{name}: {word} where PyTorch has {theirs}")
    assert rows > 400 and not wrong, "; ".join(wrong)


@test
def results_lie_as_pytorchs_own_so_that_views_of_them_are_views():
    x = torch.randn(2, 3, 6, 6)
    pooled, linear = compiled(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))), nn.Linear(72, 2)
    linear(pooled(x).view(2, -1)).sum().backward()
    for given in (x, x.to(memory_format=torch.channels_last)):
        for model in (nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())):
            theirs, ours = model(given), compiled(copy.deepcopy(model))(given)
            assert ours.stride() == theirs.stride(), f"{ours.stride()} where PyTorch has {theirs.stride()}"


class Of(nn.Module):
    """f of a layer's result, so that its argument has a gradient too."""

    def __init__(self, f, x):
        super().__init__()
        self.x, self.f = nn.Parameter(x), f

    def forward(self):
        return self.f(self.x)


@test
def heads_of_keys_that_a_model_repeats_have_their_gradients():
    for heads, T, S, masked, dtype in ((1, 6, 6, True, torch.float32), (1, 4, 6, False, torch.float32), (2, 5, 5, True, torch.float64), (1, 5, 5, False, torch.float64)):
        mask = torch.ones(T, S, dtype=torch.bool).tril() if masked else None

        def f(q, k, v):
            k, v = (x[:, :, None].expand(2, heads, 4 // heads, S, 8).reshape(2, 4, S, 8) for x in (k, v))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked)
        given = [torch.randn(2, h, n, 8, dtype=dtype) for h, n in ((4, T), (heads, S), (heads, S))]
        found = []
        for run in (f, compiled(f)):
            leaves = [x.clone().requires_grad_() for x in given]
            run(*leaves).sin().sum().backward()
            found.append([x.grad for x in leaves])
        for a, b in zip(*found):
            assert float((a - b).abs().max()) < 1e-5 * max(1, float(a.abs().max())), (heads, T, S, masked)


@test
def edges_of_single_operations_are_pytorchs():
    x = torch.ones(4, 4, requires_grad=True)
    y = compiled(lambda x: F.dropout(x, 1.0))(x)
    y.sum().backward()
    assert not y.any() and not x.grad.any()
    small = torch.tensor([100, 2], dtype=torch.int8)
    for f in (lambda x: x.float() * 2, lambda x: x * 3, lambda x: (x.float() * 50).to(torch.int16)):
        want, got = f(small), compiled(f)(small)
        assert got.dtype == want.dtype and torch.equal(got, want)
    assert compiled(lambda x: torch.cat([x.flatten()[:0]] * 2))(torch.ones(3, 2)).shape == (0,)
    q, k = torch.randn(2, 3, 5, 4), torch.randn(1, 3, 5, 4)
    assert float((compiled(F.scaled_dot_product_attention)(q, k, k) - F.scaled_dot_product_attention(q, k, k)).abs().max()) < 1e-6
    a, b = torch.tensor([float("inf"), 0.0, 1.0]), torch.tensor([0.0, float("inf"), 2.0])
    for w in (0.7, 0.2, torch.tensor([0.7, 0.7, 0.2])):
        want, got = torch.lerp(a, b, w), compiled(torch.lerp)(a, b, w)
        assert torch.equal(torch.isnan(got), torch.isnan(want)) and torch.allclose(got, want, equal_nan=True)


@test
def gradients_that_are_operations_of_their_own_are_pytorchs():
    image, volume, rows = torch.randn(2, 4, 6, 5), torch.randn(2, 4, 4, 6, 5), torch.randn(2, 3, 4)
    weights = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    compare(weights, rows)
    compare(nn.Conv3d(4, 2, (2, 3, 3), (1, 2, 1), padding=1), volume)
    compare(nn.Bilinear(4, 4, 2), rows, rows * 2)
    each = {}
    for f, x in ((lambda x: F.avg_pool3d(x, 2, 1, 1, count_include_pad=False), volume), (lambda x: F.max_pool3d(x, 2, 2), volume),
                 (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), volume), (lambda x: F.pad(x, (2, 1), mode="replicate"), rows),
                 (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), image), (lambda x: F.pad(x, (1, 1, 0, 2, 2, 0), mode="replicate"), volume),
                 (lambda x: F.adaptive_max_pool2d(x, (4, 3)), image), (lambda x: F.adaptive_max_pool1d(x, 3), rows),
                 (lambda x: F.adaptive_avg_pool2d(x, (4, 3)), image), (lambda x: torch.cdist(x, x * 2 + 1), rows), (lambda x: torch.cdist(x, x), rows),
                 (lambda x: torch.cdist(x, x * 2, p=1), rows), (lambda x: torch.cdist(x, x * 2, p=3), rows), (lambda x: torch.cdist(x, x * 2, p=float("inf")), rows),
                 (lambda x: F.grid_sample(x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), align_corners=False), image),
                 (lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), padding_mode="border", align_corners=True), image),
                 (lambda x: x.masked_scatter(x > 0, x * 2), rows), (lambda x: x.take(torch.tensor([0, 5, -1, 5])), rows),
                 (lambda x: x.cummax(1)[0] + x.median(2, keepdim=True)[0] + x.logcumsumexp(2), rows), (lambda x: x.diagonal(1, 1, 2), rows)):
        each.setdefault(id(x), (x, []))[1].append(f)
    for x, fs in each.values():  # one graph for all functions of a tensor
        compare(Of(lambda x, fs=fs: torch.cat([f(x).flatten() for f in fs]), x))


@test
def channels_last_is_read_as_it_lies():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    gc.collect()
    compare(model, torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last))
    assert anneal.torch.counts()["calls"] > 0 and anneal.torch.counts()["copies"] == 0, anneal.torch.counts()


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(11, 16), nn.Linear(16, 48), nn.Linear(16, 11)

    def forward(self, ids, labels):
        x = self.table(ids)
        q, k, v = (t.view(*ids.shape, 2, 8).transpose(1, 2) for t in self.qkv(x).split(16, 2))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return F.cross_entropy(self.out(x).flatten(0, 1), labels.flatten())


@test
def attention_and_a_loss_in_the_graph_are_pytorchs():
    compare(Transformer(), torch.randint(0, 11, (3, 6)), torch.randint(0, 11, (3, 6)))


def attended(heads, T, S, **more):
    """q, k and v in float32 as leaves, and the gradients that `run` gives them."""
    q, k, v = torch.randn(2, 4, T, 8), torch.randn(2, heads, S, 8), torch.randn(2, heads, S, 8)
    weight = torch.randn(2, 4, T, 8)

    def gradients(f):
        leaves = [t.float().requires_grad_() for t in (q, k, v)]
        y = f(*leaves)
        (y * weight.float()).sum().backward()
        return [y.detach()] + [t.grad for t in leaves]
    return gradients, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **more)


@test
def attention_in_float32_is_pytorchs_and_is_not_computed_again_for_its_gradient():
    for heads, T, S, more in ((4, 6, 6, {}), (4, 6, 6, {"is_causal": True}), (4, 5, 7, {}), (4, 6, 6, {"scale": 0.3}), (2, 6, 6, {"enable_gqa": True}),
                              (4, 5, 7, {"is_causal": True}), (4, 6, 6, {"attn_mask": torch.randn(6, 6).float()})):
        gradients, f = attended(heads, T, S, **more)
        theirs, ours = gradients(f), gradients(compiled(f))
        for a, b in zip(theirs, ours):
            assert torch.allclose(a, b, atol=2e-5), (heads, T, S, more, (a - b).abs().max())
    gradients, f = attended(4, 6, 6)
    anneal.torch._alive.clear()
    gradients(compiled(f))
    assert anneal.torch.counts()["launches"] == 2, anneal.torch.counts()


@test
def constant_masks_of_causal_form_are_themselves_where_attention_is_a_formula():
    for T, S, width, scale, window in ((3, 5, 4, None, 9), (5, 5, 8, 0.0, 2), (3, 5, 8, 0.0, 9), (6, 6, 4, None, 3), (3, 7, 8, None, 2)):
        def f(q, k, v):
            last, key = torch.arange(T)[:, None] + S - T, torch.arange(S)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=(key <= last) & (key > last - window), scale=scale)
        q, k, v = (torch.randn(1, 2, *shape).float() for shape in ((T, 8), (S, 8), (S, width)))
        assert torch.allclose(compiled(f)(q, k, v), f(q.double(), k.double(), v.double()).float(), atol=1e-5), (T, S, width, scale, window)


@test
def the_sums_of_attention_mean_the_same_to_pytorchs_kernels():
    real = anneal.torch.Plan
    for refused in ("forward", "backward"):  # the other graph is anneal's
        gradients, f = attended(4, 6, 6, is_causal=True)

        class Never(real):
            def __init__(self, name, text, wanted, narrow):
                self.model = self.context = self.file = None
                if name == refused:
                    raise anneal.torch.Unsupported("refused by the test")
                super().__init__(name, text, wanted, narrow)
        anneal.torch.Plan = Never
        try:
            ours = gradients(compiled(f, options={"fallback": True}))
        finally:
            anneal.torch.Plan = real
        for a, b in zip(gradients(f), ours):
            assert torch.allclose(a, b, atol=2e-5), (refused, (a - b).abs().max())


@test
def an_id_out_of_range_is_a_sentence():
    run = compiled(nn.Embedding(5, 3))
    run(torch.tensor([4]))
    try:
        run(torch.tensor([5]))
    except RuntimeError as e:
        assert "5" in str(e), e
    else:
        raise AssertionError("it was taken")


@test
def another_batch_size_is_another_plan():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    run = compiled(model)
    for n in (2, 5, 7, 5):
        x = torch.randn(n, 4)
        assert torch.allclose(run(x), model(x))


@test
def numbers_that_follow_from_sizes_are_those_of_each_call():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    mine = copy.deepcopy(model)
    run = compiled(mine, dynamic=True)
    for n, size in ((2, 9), (5, 9), (3, 11)):
        x = torch.randn(n, 2, size, size)
        for f in (model, run):
            f(x).square().sum().backward()
    for p, q in zip([*(p.grad for p in model.parameters()), *model.buffers()], [*(p.grad for p in mine.parameters()), *mine.buffers()]):
        assert torch.allclose(p, q), (p, q)


@test
def without_gradients_it_is_a_graph_too():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).eval()
    run = compiled(model)
    with torch.no_grad():
        x = torch.randn(2, 4)
        assert torch.allclose(run(x), model(x))


@test
def a_view_of_an_input_stays_a_view():
    x = torch.randn(3, 4)
    y = compiled(lambda t: (t.t(), t + 1))(x)[0]
    assert y.data_ptr() == x.data_ptr() and y.stride() == (1, 4)


@test
def dropout_draws_anew_at_each_call_and_keeps_its_share():
    run = compiled(nn.Dropout(0.25))
    x = torch.ones(200, 200)
    a, b = run(x), run(x)
    assert not torch.equal(a, b)
    assert abs(float((a != 0).float().mean()) - 0.75) < 0.02
    assert torch.allclose(a[a != 0], torch.tensor(1 / 0.75))


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(3, 3)

    def forward(self, x):
        return torch.special.bessel_j0(self.inside(x)).sum()


@test
def an_operation_that_is_not_there_is_a_sentence_with_its_line():
    try:
        compiled(Unknown())(torch.randn(2, 3))
    except Exception as e:
        assert re.search(r"aten\.special_bessel_j0\.default.*torch_compile\.py:\d+", str(e)), e
        assert "fallback" in str(e)
    else:
        raise AssertionError("it was taken")


@test
def a_graph_that_falls_back_is_counted():
    before = anneal.torch.counts()["fallback_calls"]
    model, x = Unknown(), torch.randn(2, 3)
    with torch.no_grad():
        assert torch.allclose(compiled(model, options={"fallback": True})(x), model(x))
    assert anneal.torch.counts()["fallback_calls"] == before + 1
    assert any("bessel" in s for s in anneal.torch.counts()["fallbacks"])


@test
def pools_and_attention_fall_back_with_what_pytorchs_kernels_take():
    class Both(nn.Module):
        def forward(self, x):
            p = F.max_pool2d(x, 2)
            return torch.special.bessel_j0(F.scaled_dot_product_attention(p, p, p)).sum()
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    compiled(Both(), options={"fallback": True})
    real, anneal.torch.Plan = anneal.torch.Plan, None
    try:
        class Never:
            def __init__(self, name, text, wanted, narrow):
                raise anneal.torch.Unsupported("refused by the test")
        anneal.torch.Plan = Never
        model = nn.Sequential(nn.MaxPool2d(2))
        compiled(model, options={"fallback": True})(x).square().sum().backward()
        compiled(lambda t: F.scaled_dot_product_attention(t, t, t), options={"fallback": True})(x).sum().backward()
    finally:
        anneal.torch.Plan = real
    F.max_pool2d(y, 2).square().sum().backward()
    F.scaled_dot_product_attention(y, y, y).sum().backward()
    assert torch.allclose(x.grad, y.grad)


@test
def an_option_that_is_not_there_is_refused():
    try:
        compiled(nn.Linear(2, 2), options={"fallbak": True})(torch.randn(1, 2))
    except Exception as e:
        assert "fallbak" in str(e)
    else:
        raise AssertionError("it was taken")


@test
def what_is_dropped_frees_its_contexts():
    def once():
        model = compiled(nn.Linear(64, 64))
        model(torch.randn(8, 64)).sum().backward()
    for _ in range(3):
        once()
        torch._dynamo.reset()
        gc.collect()
    assert anneal.torch.counts()["graphs"] == 0, anneal.torch.counts()


@test
def the_structs_have_the_sizes_of_the_library():
    assert ctypes.sizeof(_library.Array) == 8 + 4 + 4 + 64 + 64
    assert _library.Options.recompute.offset == 56

"""anneal.torch.step beside PyTorch's own loop in float64, and what a step holds. torch_tests.py runs it."""
import copy
import gc
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import anneal
import anneal.torch

TESTS = []


def test(f):
    TESTS.append(f)
    return f


def refused(f, *words):
    try:
        f()
    except Exception as e:
        for w in words:
            assert w in str(e), e
        return
    raise AssertionError("it was taken")


OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def compare(model, batches, loss=None, optimizer="adamw", clip=0.0, limit=1e-9, **options):
    """Losses, norms, parameters, buffers and moments after the same updates; returns the step."""
    theirs = copy.deepcopy(model)
    step = anneal.torch.step(model, batches[0], loss=loss, optimizer=optimizer, clip=clip, **options)
    o = OPTIMIZERS[optimizer]([p for p in theirs.parameters() if p.requires_grad], **options)
    for i, batch in enumerate(batches):
        o.zero_grad()
        want = loss(theirs(*batch[:-1]), batch[-1]) if loss else theirs(*batch)
        want.backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        o.step()
        got = step(*batch)
        assert abs(float(got - want)) <= limit * max(1, abs(float(want))), (i, float(got), float(want))
        assert abs(step.norm - float(norm)) <= 1e-6 * float(norm), (step.norm, float(norm))
    for (name, p), q in zip(model.state_dict().items(), theirs.state_dict().values()):
        apart = float((p.double() - q.double()).abs().max()) / max(1e-3, float(q.abs().max()))
        assert apart <= limit, f"{name}: {apart:.1e} apart, {limit:.0e} is allowed"
    return step


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def of_classes(n=6, rows=(5,)):
    return [(torch.randn(*rows, 8), torch.randint(0, 4, rows)) for _ in range(n)]


@test
def each_optimizer_is_pytorchs_with_any_of_its_options():
    random.seed(3)
    for optimizer in OPTIMIZERS:
        for _ in range(3):
            options = {"lr": random.choice((0.1, 0.003)), "weight_decay": random.choice((0.0, 0.03, 0.3))}
            if optimizer == "sgd":
                options |= {"momentum": random.choice((0.0, 0.5, 0.9)), "dampening": random.choice((0.0, 0.2))}
                options["nesterov"] = options["momentum"] > 0 and options["dampening"] == 0
            else:
                options |= {"betas": random.choice(((0.9, 0.999), (0.5, 0.9), (0.0, 0.95))), "eps": random.choice((1e-8, 1e-3))}
            compare(perceptron(), of_classes(), F.cross_entropy, optimizer, **options)


@test
def clipping_is_pytorchs():
    for optimizer in OPTIMIZERS:
        for clip in (0.01, 0.3, 1e3):  # the norm is a float32
            compare(perceptron(), of_classes(), F.cross_entropy, optimizer, clip=clip, lr=0.05, limit=1e-6)


@test
def convolutions_and_batch_norm_with_their_statistics_are_pytorchs():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(8, 8, 3, groups=2, bias=False), nn.BatchNorm2d(8, momentum=0.3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4))
    compare(model, [(torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))) for _ in range(4)], F.cross_entropy, "sgd", lr=0.05)
    assert int(model[1].num_batches_tracked) == 4


class Summed(nn.Module):
    """The sum of f(p) times an input, p a parameter."""

    def __init__(self, f, p):
        super().__init__()
        self.f, self.p = f, nn.Parameter(p)

    def forward(self, w):
        return (self.f(self.p) * w).sum()


@test
def resampling_and_transposed_convolutions_of_drawn_shapes_are_pytorchs():
    d = random.Random(5)
    for axes, mode in ((1, "nearest"), (2, "nearest"), (2, "nearest-exact"), (3, "nearest-exact"), (1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")):
        for _ in range(3):
            x = torch.randn(2, 3, *(d.randint(1, 7) for _ in range(axes)), dtype=torch.float64)
            options = {"align_corners": d.random() < 0.5} if "near" not in mode else {}
            # of one or three axes PyTorch's gradient of nearest neighbours has, for lengths that stay or double, other neighbours than its values
            scale = d.choice((2, 1.3, 2.3)) if (axes, mode) == (2, "nearest") else d.choice((3, 1.5, 0.5)) if mode == "nearest" else d.choice((2, 1.1, 0.7))
            options.update({"scale_factor": scale} if min(x.shape[2:]) * scale >= 1 else {"size": [d.randint(1, 9) for _ in range(axes)]})

            def f(x):
                return F.interpolate(x, mode=mode, **options)
            w = torch.randn_like(f(x))
            compare(Summed(f, x), [(w,), (w,)], optimizer="sgd", lr=0.5)
    for _ in range(12):
        axes, g = d.choice((1, 2, 2, 3)), d.choice((1, 1, 2))
        kernel, stride, dilation = ([d.randint(1, 3) for _ in range(axes)] for _ in range(3))
        layer = getattr(nn, f"ConvTranspose{axes}d")(2 * g, 3 * g, kernel, stride, d.randint(0, 1), [max(s, e) - 1 for s, e in zip(stride, dilation)], g,
                                                     bias=d.random() < 0.5, dilation=dilation).double()
        x = torch.randn(2, 2 * g, *(d.randint(2, 5) for _ in range(axes)), dtype=torch.float64)
        w = torch.randn_like(layer(x))
        if w.numel():
            compare(nn.Sequential(layer), [(x, w), (x, w)], loss=lambda y, w: (y * w).sum(), optimizer="sgd", lr=0.5)


@test
def the_nearest_of_infinities_is_no_nan():
    x = torch.tensor([[[1.0, float("inf"), -2.0, float("nan")]]])
    for size in (8, 5, 3):
        step = anneal.torch.step(Summed(lambda p: torch.where(torch.isinf(F.interpolate(p, size=size)), 1.0, 0.0), x), (torch.ones(1, 1, size),), optimizer="sgd", lr=0.5)
        assert float(step(torch.ones(1, 1, size))) == float(torch.isinf(F.interpolate(x, size=size)).sum())


@test
def a_sum_of_grouped_convolutions_is_pytorchs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Conv2d(18, 15, 1, groups=3, bias=False) for _ in range(2))

        def forward(self, x, w):
            return ((self.a(x) + self.b(x)) * w).sum()
    compare(Two(), [(torch.randn(3, 18, 4, 3), torch.randn(3, 15, 4, 3)) for _ in range(2)], optimizer="sgd", lr=0.1, limit=1e-5)


class Tied(nn.Module):
    """A decoder whose table is its head, that returns its loss."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.head = nn.Embedding(11, 16), nn.Linear(16, 48), nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight
        self.qkv.bias.requires_grad_(False)

    def forward(self, ids, labels):
        x = self.table(ids)
        q, k, v = (t.view(*ids.shape, 2, 8).transpose(1, 2) for t in self.qkv(x).split(16, 2))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


@test
def tied_parameters_stay_tied_and_frozen_ones_keep_their_bits():
    model = Tied()
    before = model.qkv.bias.clone()
    ids = [(torch.randint(0, 11, (3, 6)), torch.randint(0, 11, (3, 6))) for _ in range(5)]
    compare(model, ids, lr=0.01)
    assert model.head.weight is model.table.weight
    assert torch.equal(model.qkv.bias, before)


@test
def the_parameters_are_the_models_own():
    model = perceptron()
    weight, x = model[0].weight, torch.randn(5, 8)
    step = anneal.torch.step(model, (x, torch.randint(0, 4, (5,))), loss=nn.CrossEntropyLoss(), lr=0.1)
    before, result = weight.detach().clone(), model(x)
    step(x, torch.randint(0, 4, (5,)))
    assert model[0].weight is weight and not torch.equal(weight, before) and not torch.equal(model(x), result)
    model.load_state_dict({k: torch.zeros_like(v) for k, v in model.state_dict().items()})  # in place: the step sees it
    assert abs(float(step(x, torch.randint(0, 4, (5,)))) - torch.tensor(4.0).log()) < 1e-12
    del step
    gc.collect()
    assert torch.isfinite(model(x)).all()  # they outlive it


@test
def another_batch_size_is_another_plan_of_the_same_step():
    compare(perceptron(), [b for n in (5, 3, 9, 5, 3) for b in of_classes(1, (n,))], F.cross_entropy, lr=0.02)


@test
def a_learning_rate_may_change_without_a_new_plan():
    model, theirs = perceptron(), None
    theirs = copy.deepcopy(model)
    batches = of_classes()
    step = anneal.torch.step(model, batches[0], loss=F.cross_entropy, lr=0.1)
    o = torch.optim.AdamW(theirs.parameters())
    for i, (x, y) in enumerate(batches):
        step.lr = o.param_groups[0]["lr"] = 0.1 / (i + 1)
        o.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        o.step()
        step(x, y)
    assert all(torch.allclose(p, q, 1e-9, 1e-12) for p, q in zip(model.parameters(), theirs.parameters()))
    assert step._plan.memory().plans == 1


@test
def a_saved_step_goes_on_with_the_same_bits():
    model, batches = perceptron(), of_classes()
    step = anneal.torch.step(model, batches[0], loss=F.cross_entropy, lr=0.1)
    for b in batches[:3]:
        step(*b)
    other = copy.deepcopy(model)
    state = {k: v.clone() if torch.is_tensor(v) else v for k, v in step.state_dict().items()}
    again = anneal.torch.step(other, batches[0], loss=F.cross_entropy, lr=0.1)
    again.load_state_dict(state)
    for b in batches[3:]:
        assert torch.equal(step(*b), again(*b))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters()))
    refused(lambda: again.load_state_dict({"updates": 1, "optimizer.m.other": torch.zeros(1)}), "not the state")


@test
def an_update_that_is_not_finite_is_skipped():
    model = perceptron()
    x, y = of_classes(1)[0]
    step = anneal.torch.step(model, (x, y), loss=F.cross_entropy)
    before = [p.detach().clone() for p in model.parameters()]
    step(x * float("nan"), y)
    assert step.updates == 0 and all(torch.equal(p, q) for p, q in zip(before, model.parameters()))
    step(x, y)
    assert step.updates == 1 and not torch.equal(before[0], model[0].weight)


@test
def a_label_that_is_no_class_is_a_loss_of_nan_and_no_update():
    x, y = of_classes(1)[0]
    wrong, far, ignored = y.clone(), y.clone(), y.clone()
    wrong[2], far[0], ignored[1] = 4, -3, -100
    for loss in (F.cross_entropy, lambda s, t: F.cross_entropy(s, t, reduction="sum"), lambda s, t: F.nll_loss(F.log_softmax(s, 1), t),
                 lambda s, t: F.nll_loss(F.log_softmax(s, 1), t, reduction="sum"), lambda s, t: F.cross_entropy(s, t, reduction="none").sum(),
                 lambda s, t: F.cross_entropy(s, t, reduction="sum", label_smoothing=0.1), nn.CrossEntropyLoss(weight=torch.rand(4) + 0.5),
                 nn.CrossEntropyLoss(weight=torch.rand(4) + 0.5, reduction="sum")):
        step = anneal.torch.step(perceptron(), (x, y), loss=loss)
        for labels in (wrong, far):
            assert step(x, labels).isnan() and step.norm != step.norm and step.updates == 0
        assert step(x, ignored).isfinite() and step.updates == 1


@test
def what_cannot_be_a_step_is_refused_when_it_is_made():
    x, y = of_classes(1)[0]
    make = anneal.torch.step
    refused(lambda: make(perceptron(), (x,)), "no scalar", "loss")
    refused(lambda: make(perceptron(), (x, y), loss=F.cross_entropy, optimizer="lion"), "lion", "adamw")
    refused(lambda: make(perceptron(), (x, y), loss=F.cross_entropy, momentum=0.9), "momentum", "betas")
    refused(lambda: make(nn.Linear(8, 4), (x, y), loss=lambda a, b: torch.special.bessel_j0(a).sum()), "bessel_j0")
    refused(lambda: make(perceptron().half(), (x.half(), y), loss=F.cross_entropy), "float16")


@test
def what_a_call_cannot_take_is_refused():
    x, y = of_classes(1)[0]
    model = perceptron()
    step = anneal.torch.step(model, (x, y), loss=F.cross_entropy)
    refused(lambda: step(x), "2 tensors")
    refused(lambda: step(torch.randn(5, 9), y), "shape")
    step(x, y)
    model[0].weight.data = model[0].weight.data.clone()
    refused(lambda: step(x, y), "0.weight", "new step")


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096


@test
def ten_epochs_hold_no_more_memory_than_two():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 64), nn.Linear(64, 4))
    data = [(torch.randn(n, 3, 8, 8), torch.randint(0, 4, (n,))) for n in (64, 64, 64, 23)]
    step = anneal.torch.step(model, data[0], loss=F.cross_entropy)
    held, real = [], []
    for _ in range(10):
        for x, y in data * 5:
            step(x.clone(), y.clone())
        held.append(step.memory())
        try:
            real.append(resident())
        except OSError:
            pass
    assert len(set(held[1:])) == 1, held
    assert not real or real[-1] - real[1] < 1 << 20, [r - real[0] for r in real]


@test
def a_deleted_step_frees_its_memory_and_empty_cache_the_rest():
    gc.collect()
    before = anneal.torch.memory()
    model, (x, y) = perceptron(), of_classes(1, (4096,))[0]
    step = anneal.torch.step(model, (x, y), loss=F.cross_entropy)
    step(x, y)
    full = step.memory()
    anneal.empty_cache()
    assert 0 < step.memory() < full / 4, (step.memory(), full)  # moments stay
    first = step(x, y)
    assert step.memory() == full and torch.isfinite(first)
    del step
    gc.collect()
    assert anneal.torch.memory() == before, (anneal.torch.memory(), before)

#!/usr/bin/env python3
"""Prints the polynomial coefficients of src/base/exact.h (needs mpmath, numpy).

Each fit is a weighted minimax fit by Lawson's iteration on values of 40 digits. Coefficients are rounded to float32 from the lowest power up; after
each rounding the remaining ones are fitted again, so that they absorb its error.
"""
import sys
import mpmath as mp
import numpy as np

mp.mp.dps = 40


def lawson(rows, target, rounds=60):
    """Minimises max |rows @ c - target| by least squares with the weights raised where the error is large."""
    w = np.full(len(target), 1.0 / len(target))
    best, best_err = None, np.inf
    scale = np.abs(rows).max(axis=0)
    for _ in range(rounds):
        s = np.sqrt(w)[:, None]
        c = np.linalg.lstsq(rows / scale * s, target * s[:, 0], rcond=None)[0] / scale
        e = np.abs(rows @ c - target)
        if e.max() < best_err:
            best, best_err = c, e.max()
        w = w * (e + 1e-30)
        w /= w.sum()
    return best, best_err


def fit(name, f, powers, weight, a, b):
    a, b = mp.mpf(a), mp.mpf(b)
    x = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * (2 * i + 1) / 1202) for i in range(601)]
    w = [weight(t) for t in x]
    y = [f(t) for t in x]
    rows = np.array([[float(v * t**p) for p in powers] for t, v in zip(x, w)])
    target = np.array([float(u * v) for u, v in zip(y, w)])
    ideal = lawson(rows, target)[1]
    c = []
    for i in range(len(powers)):
        rest = lawson(rows[:, i:], target - rows[:, :i] @ np.array(c))[0]
        c.append(float(np.float32(rest[0])))
    err = np.abs(rows @ np.array(c) - target).max()
    print(f"{name}: minimax 2^{np.log2(ideal):.2f}, rounded 2^{np.log2(err):.2f}")
    print("    " + ", ".join(f"{v:.9g}f" for v in c))
    sys.stdout.flush()


def q(f, lead, k):
    """(f - lead) / x^k, by series near 0."""
    return lambda t: mp.limit(lambda u: (f(u) - lead(u)) / u**k, 0) if abs(t) < mp.mpf("1e-12") else (f(t) - lead(t)) / t**k


ONE = mp.mpf(1)
fits = {
    "exp": lambda n: fit(f"exp: e^r = 1 + r + r^2 q(r), {n}", q(mp.exp, lambda t: 1 + t, 2), list(range(n)),
                         lambda t: abs(t) if abs(t) < 1e-9 else t**2 / abs(mp.expm1(t)), -0.3467, 0.34670001),
    "log": lambda n: fit(f"log1p(f) = f + f^2 q(f), {n}", q(mp.log1p, lambda t: t, 2), list(range(n)),
                         lambda t: abs(t) if abs(t) < 1e-9 else t**2 / abs(mp.log1p(t)), -0.25, 0.5000001),
    "sin": lambda n: fit(f"sin r = r + r^3 s(r^2), {n}", lambda z: q(mp.sin, lambda t: t, 3)(mp.sqrt(z)), list(range(n)),
                         lambda z: z, "1e-8", "0.66"),
    "cos": lambda n: fit(f"cos r = 1 - r^2/2 + r^4 c(r^2), {n}", lambda z: q(mp.cos, lambda t: 1 - t * t / 2, 4)(mp.sqrt(z)),
                         list(range(n)), lambda z: z * z, "1e-8", "0.66"),
    "tanh": lambda n: fit(f"tanh x = x + x^3 p(x^2), |x| < 0.55, {n}", lambda z: q(mp.tanh, lambda t: t, 3)(mp.sqrt(z)),
                          list(range(n)), lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)), "1e-8", "0.3026"),
    "erf": lambda n: fit(f"erf x = x + x p(x^2), |x| < 0.9375, {n}", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, list(range(n)),
                         lambda z: ONE, "1e-12", "0.8790"),
    "erfc": lambda n: fit(f"-log erfc x = q(x), 0.9375 <= x < 3.93, {n}", lambda t: -mp.log(mp.erfc(t)), list(range(n)),
                          lambda t: mp.erfc(t), "0.93", "3.93"),
    "atanh": lambda n: fit(f"log((1+s)/(1-s)) = 2 s + s^3 a(s^2), {n}",
                           lambda z: q(lambda s: mp.log((1 + s) / (1 - s)), lambda s: 2 * s, 3)(mp.sqrt(z)), list(range(n)),
                           lambda z: z, "1e-8", "0.0404"),
    "atan": lambda n: fit(f"atan t = t + t^3 p(t^2), |t| <= tan(pi/8), {n}", lambda z: q(mp.atan, lambda t: t, 3)(mp.sqrt(z)),
                          list(range(n)), lambda z: z * mp.sqrt(z) / mp.atan(mp.sqrt(z)), "1e-8", "0.1716"),
    "recip": lambda n: fit(f"1/d = p(d), 1 <= d <= 2, {n}", lambda d: 1 / d, list(range(n)), lambda d: d, 1, 2),
}
if __name__ == "__main__":
    # name=count picks another number of coefficients, to see what one more is worth
    chosen = dict(a.split("=") for a in sys.argv[1:])
    counts = dict(exp=5, log=9, sin=3, tanh=5, cos=3, erf=6, erfc=7, atanh=4, atan=5, recip=4)
    for name, n in (chosen or counts).items():
        fits[name](int(n))

/* samplers.c: from logits to one token: greedy, temperature, top-k, top-p.
 *
 * Owns:       the candidates (a copy of the logits with their ids) and the order in which they are cut.
 * Does not:   know models or text; draw on a device (an_draw: device/cpu/draw.c, kernels/gpu/draw.inc).
 * Invariants: ties are broken by the lower id; the draw visits the kept tokens in a fixed order, so that equal logits,
 *             options and draw number give the same token on every machine.
 */
#include <anneal_nn.h>
#include <stdlib.h>

typedef struct candidate {
    double weight; /* logit, then probability before it is normalised */
    int64_t id;
} candidate;

struct an_sampler {
    an_sampler_options o;
    int64_t n;
    candidate *c;  /* [n] */
    double *order; /* [n] scratch of the selection */
};

an_sampler *an_sampler_open(const an_sampler_options *o, int64_t n_tokens)
{
    if (!(o->temperature >= 0) || !(o->top_p >= 0 && o->top_p <= 1) || o->top_k < 0 || n_tokens < 1) return NULL;
    an_sampler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (an_sampler){.o = *o, .n = n_tokens};
    s->c = calloc((size_t)n_tokens, sizeof *s->c);
    s->order = calloc((size_t)n_tokens, sizeof *s->order);
    if (!s->c || !s->order) {
        an_sampler_close(s);
        return NULL;
    }
    return s;
}

void an_sampler_close(an_sampler *s)
{
    if (!s) return;
    free(s->c);
    free(s->order);
    free(s);
}

/* Uniform in [0,1) with 53 bits, a function of (seed, draw): splitmix64's finaliser over both (Steele, Lea, Flood,
 * OOPSLA 2014). */
static double uniform(uint64_t seed, uint64_t draw)
{
    uint64_t x = seed * 0xD1342543DE82EF95u + (draw + 1) * 0x9E3779B97F4A7C15u;
    for (int round = 0; round < 2; round++) {
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        x ^= x >> 31;
        x += seed;
    }
    return (double)(x >> 11) * 0x1p-53;
}

/* The token of the largest logit, the first of equals; -1: a logit is NaN, or all are -inf. */
static int64_t greedy(const float *logits, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] != logits[i]) return -1;
        if (best < 0 || logits[i] > logits[best]) best = i;
    }
    return logits[best] - logits[best] == 0 || logits[best] > 0 ? best : -1; /* all logits are -inf */
}

/* The k-th largest of v[0..n), which it reorders (Hoare's selection; the middle element as pivot keeps sorted input
 * linear). */
static double kth_largest(double *v, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1, want = k - 1;
    while (lo < hi) {
        double pivot = v[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i > j) break;
            double t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (want <= j)
            hi = j;
        else if (want >= i)
            lo = i;
        else
            break;
    }
    return v[want];
}

static int by_weight_then_id(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Fills s->c with the tokens that top-k keeps, weighted by exp((logit - max) / temperature); returns their number.
 * `first` is the token of the largest logit. */
static int64_t keep_top_k(an_sampler *s, const float *logits, int64_t first)
{
    double top = logits[first], least = -1.0 / 0.0;
    if (s->o.top_k > 0 && s->o.top_k < s->n) {
        for (int64_t i = 0; i < s->n; i++) s->order[i] = logits[i];
        least = kth_largest(s->order, s->n, s->o.top_k);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (logits[i] < least) continue;
        s->c[kept++] = (candidate){an_exp_host((logits[i] - top) / s->o.temperature), i};
    }
    return kept;
}

/* Sorts the first n candidates and returns how many of them top-p keeps. */
static int64_t keep_top_p(an_sampler *s, int64_t n)
{
    if (s->o.top_p <= 0 || s->o.top_p >= 1) return n;
    qsort(s->c, (size_t)n, sizeof *s->c, by_weight_then_id);
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) total += s->c[i].weight;
    for (int64_t i = 0; i < n; i++) {
        sum += s->c[i].weight;
        if (sum >= s->o.top_p * total) return i + 1;
    }
    return n;
}

int64_t an_sampler_next(an_sampler *s, const float *logits, uint64_t draw)
{
    int64_t first = greedy(logits, s->n); /* also finds NaN */
    if (first < 0 || s->o.temperature == 0) return first;
    if (logits[first] - logits[first] != 0) return first; /* +inf: probability 1 */
    int64_t n = keep_top_p(s, keep_top_k(s, logits, first));
    double total = 0, at = 0;
    for (int64_t i = 0; i < n; i++) total += s->c[i].weight;
    double want = uniform(s->o.seed, draw) * total;
    for (int64_t i = 0; i < n; i++) {
        at += s->c[i].weight;
        if (want < at) return s->c[i].id;
    }
    return first; /* `want` was rounded up to the whole sum */
}

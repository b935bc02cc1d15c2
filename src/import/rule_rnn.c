/* rule_rnn.c: recurrent layers of PyTorch: one product with the inputs of all steps, then the steps one after the other.
 *
 * Gates are in the order of PyTorch: i f g o in an LSTM, r z n in a GRU. An LSTM with a projection (proj_size) has a state h of P numbers
 * and c of H; elsewhere P is H. */
#include "import/rules.h"
#include <string.h>

enum { MOST_STEPS = 4096 };

typedef enum cell { CELL_LSTM, CELL_GRU, CELL_TANH, CELL_RELU } cell;

typedef struct weights {
    an_tensor *wi, *wh, *bi, *bh, *wr; /* [G H,in], [G H,P], [G H] or NULL, [P,H] or NULL */
} weights;

/* Gate k of x [B,G H]. */
static an_tensor *gate(an_tensor *x, int k, int64_t H)
{
    return an_slice_at(AN_AT, x, 1, k * H, (k + 1) * H, 1);
}

/* One step: xi [B,G H] is the inputs' part with its bias; h [B,P] and c [B,H] are replaced. */
static void step(cell kind, an_tensor *xi, const weights *w, an_tensor **h, an_tensor **c)
{
    const int64_t H = an_dim(kind == CELL_LSTM ? *c : *h, 1);
    an_tensor *hi = an_as(an_linear_at(AN_AT, *h, w->wh, w->bh), an_dtype_of(xi));
    if (kind == CELL_GRU) {
        an_tensor *of_h = gate(hi, 0, H), *r = an_sigmoid_at(AN_AT, an_add_at(AN_AT, gate(xi, 0, H), of_h));
        of_h = gate(hi, 1, H);
        an_tensor *z = an_sigmoid_at(AN_AT, an_add_at(AN_AT, gate(xi, 1, H), of_h));
        of_h = an_mul_at(AN_AT, r, gate(hi, 2, H));
        an_tensor *new = an_tanh_at(AN_AT, an_add_at(AN_AT, gate(xi, 2, H), of_h));
        *h = an_add_at(AN_AT, new, an_mul_at(AN_AT, z, an_sub_at(AN_AT, *h, new)));
        return;
    }
    an_tensor *x = an_add_at(AN_AT, xi, hi);
    if (kind != CELL_LSTM) {
        *h = kind == CELL_TANH ? an_tanh_at(AN_AT, x) : an_relu_at(AN_AT, x);
        return;
    }
    an_tensor *i = an_sigmoid_at(AN_AT, gate(x, 0, H)), *f = an_sigmoid_at(AN_AT, gate(x, 1, H));
    an_tensor *g = an_tanh_at(AN_AT, gate(x, 2, H)), *o = an_sigmoid_at(AN_AT, gate(x, 3, H));
    g = an_mul_at(AN_AT, i, g);
    *c = an_add_at(AN_AT, an_mul_at(AN_AT, f, *c), g);
    *h = an_mul_at(AN_AT, o, an_tanh_at(AN_AT, *c));
    if (w->wr) *h = an_as(an_linear_at(AN_AT, *h, w->wr, NULL), an_dtype_of(*c));
}

/* A direction of a layer: x [T,B,in] to [T,B,P]; h [B,P] and c [B,H] become the last ones. */
static an_tensor *direction(cell kind, an_tensor *x, const weights *w, bool reverse, an_tensor **h, an_tensor **c,
                            an_arena *arena)
{
    const int64_t T = an_dim(x, 0), B = an_dim(x, 1), P = an_dim(*h, 1);
    const int64_t width = an_dim(w->wi, 0); /* G H */
    weights own = *w;
    if (kind != CELL_GRU && w->bi) { /* both are added at each step: so is their sum, with the inputs' part */
        own.bi = an_add_at(AN_AT, w->bi, w->bh);
        own.bh = NULL;
    }
    an_tensor *xi = an_widen(an_linear_at(AN_AT, x, w->wi, own.bi)); /* [T,B,G H] */
    an_tensor **out = AN_NEW_ARRAY(arena, an_tensor *, T + 1);
    if (!out || T < 1) return NULL;
    for (int64_t k = 0; k < T; k++) {
        const int64_t t = reverse ? T - 1 - k : k;
        an_tensor *now = an_reshape_at(AN_AT, an_slice_at(AN_AT, xi, 0, t, t + 1, 1), AN_SHAPE(B, width));
        step(kind, now, &own, h, c);
        out[t] = an_reshape_at(AN_AT, *h, AN_SHAPE(1, B, P));
    }
    return an_concat_at(AN_AT, out, (int)T, 0);
}

/* Layer l of a state [layers,B,H]. */
static an_tensor *part(an_tensor *state, int l)
{
    return an_reshape_at(AN_AT, an_slice_at(AN_AT, state, 0, l, l + 1, 1),
                         AN_SHAPE(an_dim(state, 1), an_dim(state, 2)));
}

typedef struct network {
    cell kind;
    an_tensor *x, *h, *c; /* [T,B,in], [layers directions,B,H] */
    int params;           /* the argument that lists them */
    bool biases, twice, batch_first, projected;
    int layers;
    double dropout;
} network;

static weights weights_of(an_build *b, const an_pt2_node *n, const network *net, int at)
{
    const int plain = net->biases ? 4 : 2, each = plain + net->projected;
    weights w = {.wi = an_in_list(b, n, net->params, at * each), .wh = an_in_list(b, n, net->params, at * each + 1)};
    if (net->biases) {
        w.bi = an_in_list(b, n, net->params, at * each + 2);
        w.bh = an_in_list(b, n, net->params, at * each + 3);
    }
    if (net->projected) w.wr = an_in_list(b, n, net->params, at * each + plain);
    return w;
}

static an_status run_layers(an_build *b, const an_pt2_node *n, const network *net, an_arena *arena)
{
    enum { MOST = 64 };
    an_tensor *x = net->x, *last_h[MOST], *last_c[MOST];
    const int directions = net->twice ? 2 : 1;
    int count = 0;
    for (int l = 0; l < net->layers; l++) {
        an_tensor *y[2] = {NULL, NULL};
        if (l > 0 && net->dropout > 0) x = an_dropout_at(AN_AT, x, net->dropout);
        for (int d = 0; d < directions; d++, count++) {
            const weights w = weights_of(b, n, net, count);
            an_tensor *h = part(net->h, count), *c = net->c ? part(net->c, count) : NULL;
            y[d] = direction(net->kind, x, &w, d == 1, &h, &c, arena);
            if (!y[d]) return an_fail_nomem(b->err, "steps of a recurrent layer", 0);
            last_h[count] = an_reshape_at(AN_AT, h, AN_SHAPE(1, an_dim(h, 0), an_dim(h, 1)));
            if (c) last_c[count] = an_reshape_at(AN_AT, c, AN_SHAPE(1, an_dim(c, 0), an_dim(c, 1)));
        }
        x = directions == 2 ? an_concat_at(AN_AT, y, 2, 2) : y[0];
    }
    an_out(b, n, 0, net->batch_first ? an_transpose_at(AN_AT, x, 0, 1) : x);
    an_out(b, n, 1, an_concat_at(AN_AT, last_h, count, 0));
    if (net->c) an_out(b, n, 2, an_concat_at(AN_AT, last_c, count, 0));
    return AN_OK;
}

/* input, state(s), params, has_biases, num_layers, dropout, train, bidirectional, batch_first */
static an_status recurrent(an_build *b, const an_pt2_node *n, cell kind)
{
    network net = {.kind = kind, .x = an_in(b, n, 0), .params = 2};
    const bool lstm = kind == CELL_LSTM;
    net.h = lstm ? an_in_list(b, n, 1, 0) : an_in(b, n, 1);
    net.c = lstm ? an_in_list(b, n, 1, 1) : NULL;
    net.biases = an_in_bool(b, n, 3);
    net.layers = (int)AN_MIN(AN_MAX(an_in_int(b, n, 4), 0), 1 << 16);
    net.dropout = an_in_bool(b, n, 6) && !b->inference ? an_in_float(b, n, 5) : 0;
    net.twice = an_in_bool(b, n, 7);
    net.batch_first = an_in_bool(b, n, 8);
    const int count = net.layers * (net.twice ? 2 : 1);
    const int each = net.biases ? 4 : 2;
    net.projected = lstm && an_in_count(n, 2) == count * (each + 1);
    if (an_in_count(n, 2) != count * (each + net.projected) || count < 1 || count > 64 || an_rank(net.x) != 3 ||
        an_rank(net.h) != 3)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "inputs without a batch, or more than 64 layers");
    if (net.batch_first) net.x = an_transpose_at(AN_AT, net.x, 0, 1);
    if (an_dim(net.x, 0) > MOST_STEPS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "%lld steps; %d are the most", (long long)an_dim(net.x, 0),
                               MOST_STEPS);
    an_arena arena = {0};
    an_status status = run_layers(b, n, &net, &arena);
    an_arena_free(&arena);
    return status;
}

an_status an_rule_lstm(an_build *b, const an_pt2_node *n)
{
    return recurrent(b, n, CELL_LSTM);
}
an_status an_rule_gru(an_build *b, const an_pt2_node *n)
{
    return recurrent(b, n, CELL_GRU);
}
an_status an_rule_rnn_tanh(an_build *b, const an_pt2_node *n)
{
    return recurrent(b, n, CELL_TANH);
}
an_status an_rule_rnn_relu(an_build *b, const an_pt2_node *n)
{
    return recurrent(b, n, CELL_RELU);
}

/* One step: input [B,in], state [B,H], weights and biases as arguments. */
static an_status one_step(an_build *b, const an_pt2_node *n, cell kind)
{
    const bool lstm = kind == CELL_LSTM;
    an_tensor *x = an_in(b, n, 0), *h = lstm ? an_in_list(b, n, 1, 0) : an_in(b, n, 1);
    an_tensor *c = lstm ? an_in_list(b, n, 1, 1) : NULL;
    const weights w = {an_in(b, n, 2), an_in(b, n, 3), an_in(b, n, 4), an_in(b, n, 5), NULL};
    if (an_rank(x) != 2 || an_rank(h) != 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "without a batch");
    step(kind, an_widen(an_linear_at(AN_AT, x, w.wi, w.bi)), &w, &h, &c);
    an_out(b, n, 0, h);
    if (c) an_out(b, n, 1, c);
    return AN_OK;
}

an_status an_rule_lstm_cell(an_build *b, const an_pt2_node *n)
{
    return one_step(b, n, CELL_LSTM);
}
an_status an_rule_gru_cell(an_build *b, const an_pt2_node *n)
{
    return one_step(b, n, CELL_GRU);
}
an_status an_rule_rnn_tanh_cell(an_build *b, const an_pt2_node *n)
{
    return one_step(b, n, CELL_TANH);
}
an_status an_rule_rnn_relu_cell(an_build *b, const an_pt2_node *n)
{
    return one_step(b, n, CELL_RELU);
}

#define _DEFAULT_SOURCE
#include "train/session.h"
#include "train/init_weights.h"
#include "tools/estimate.h"
#include "report/provenance.h"
#include "train/step.h"
#include "io/formats/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double an_session_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

an_status an_session_fault(an_err *err, an_ctx *cx)
{
    if (!cx) return an_fail(err, AN_E_NOMEM, "no memory for a context");
    const char *sentence = an_error(cx);
    return sentence ? an_fail(err, an_error_status(cx), "%s", sentence) : AN_OK;
}

an_status an_session_result(an_err *err, an_ctx *cx, an_status status)
{
    if (status == AN_OK) return AN_OK;
    an_status recorded = an_session_fault(err, cx);
    return recorded != AN_OK ? recorded
                             : an_fail(err, status, "the device gave status %d and no sentence", (int)status);
}

/* ---- opening, in order: tokenizer, data, context, model, weights */

/* Hugging Face keeps the vocabulary beside the weights. There may be none. */
static void open_tokenizer_beside(const an_st *from, an_session *r)
{
    char folder[AN_CKPT_PATH_BYTES];
    const char *path = an_st_path(from), *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (an_tokenizer_open(NULL, folder, &r->own_tokenizer) != AN_OK) r->own_tokenizer = NULL;
}

/* Of the checkpoint that weights come from, so that its ids keep their meaning; else what the settings name. */
static an_status open_tokenizer(an_err *err, const an_st *from, an_session *r)
{
    const char *json = from ? an_st_meta(from, AN_CKPT_TOKENIZER) : NULL;
    const char *folder = r->cfg.tokenizer;
    if (json)
        AN_TRY(an_tokenizer_from_json(err, an_st_path(from), json, strlen(json), &r->own_tokenizer));
    else if (strcmp(folder, "char") != 0)
        AN_TRY(an_tokenizer_open(err, folder, &r->own_tokenizer));
    else if (from)
        open_tokenizer_beside(from, r);
    r->tokenizer = r->own_tokenizer;
    return AN_OK;
}

static bool exists(const char *folder, const char *name)
{
    char path[AN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%s%s%s", folder, *name ? "/" : "", name);
    return access(path, F_OK) == 0;
}

/* nanoGPT's dataset=NAME is the folder data/NAME; and for its own settings files, where it has no meta.pkl, the ids are
 * GPT-2's, whose number is rounded up for the products' sake. */
static an_status settle_data(an_err *err, an_session *r)
{
    const char *dot = strrchr(r->cfg.preset, '.');
    char folder[AN_CONFIG_TEXT_BYTES + 8];
    char *data = r->cfg.data;
    if (strcmp(data, "corpus") == 0) return AN_OK;
    if (!exists(data, "")) {
        if (strchr(data, '/')) return an_fail(err, AN_E_IO, "data=%s: no such file or folder", data);
        snprintf(folder, sizeof folder, "data/%s", data);
        if (!exists(folder, "") || strlen(folder) >= sizeof r->cfg.data)
            return an_fail(err, AN_E_IO, "data=%s: no such file or folder, and no data/%s; anneal prepare makes one",
                           data, data);
        memcpy(data, folder, strlen(folder) + 1);
    }
    const bool known = r->cfg.vocab_size > 0 || exists(data, "meta.pkl") || exists(data, "meta.json");
    if (!known && exists(data, "train.bin") && dot && strcmp(dot, ".py") == 0) r->cfg.vocab_size = 50304;
    return AN_OK;
}

static an_status open_data(an_err *err, bool whole, an_session *r)
{
    AN_TRY(settle_data(err, r));
    const an_data_options o = {
        .source = r->cfg.data, .tokenizer = r->own_tokenizer, .vocab_size = r->cfg.vocab_size, .whole = whole};
    AN_TRY(an_data_open(err, &o, &r->data));
    r->tokenizer = an_data_tokenizer(r->data);
    return AN_OK;
}

static an_status settle_vocabulary(an_err *err, an_session *r)
{
    int64_t have = r->data ? an_data_vocab(r->data) : r->tokenizer ? an_tokenizer_vocab(r->tokenizer) : 0;
    if (r->cfg.vocab_size == 0) r->cfg.vocab_size = have;
    if (r->cfg.vocab_size == 0) return an_fail(err, AN_E_USAGE, "the number of token ids is not known: set vocab_size");
    if (have <= r->cfg.vocab_size) return AN_OK;
    return an_fail(err, AN_E_USAGE, "vocab_size=%lld, but %s has %lld different tokens", (long long)r->cfg.vocab_size,
                   r->cfg.data, (long long)have);
}

/* The budget is the run's; the device gets what data, loader and buffers leave. 0: no limit. */
static uint64_t device_budget(const an_session *r)
{
    const uint64_t all = (uint64_t)(r->cfg.budget * 1073741824.0), beside = an_estimate_host(&r->cfg, r->data);
    return r->cfg.budget == 0 ? 0 : all > beside ? all - beside : 1;
}

static an_status open_context(an_err *err, an_session *r)
{
    const an_train_config *c = &r->cfg;
    const an_options o = {.device = c->device,
                          .seed = (uint64_t)c->seed,
                          .threads = (int)c->threads,
                          .isa = c->isa[0] ? c->isa : NULL,
                          .cc = c->cc[0] ? c->cc : NULL,
                          .cache_dir = c->cache_dir[0] ? c->cache_dir : NULL,
                          .budget_bytes = device_budget(r),
                          .recompute = c->recompute,
                          .unfused = !c->compile,
                          .exact = c->exact,
                          .tf32 = c->tf32,
                          .fallback = strcmp(c->fallback, "auto") == 0 ? NULL : c->fallback,
                          .place_apart = c->place_apart,
                          .verify = c->verify,
                          .dump = c->dump[0] ? c->dump : NULL,
                          .dump_dir = c->dump_dir[0] ? c->dump_dir : NULL};
    r->cx = an_open(&o);
    AN_TRY(an_session_fault(err, r->cx));
    an_set_policy(r->cx, (an_policy){.matmul = c->dtype});
    const an_gpt_config m = an_train_model(c, c->vocab_size);
    r->model = an_gpt_open(r->cx, &m);
    AN_TRY(an_session_fault(err, r->cx));
    return r->model ? AN_OK : an_fail_nomem(err, "the model's tables", (size_t)m.layers * 128);
}

/* ---- weights and progress from a checkpoint */

/* Moments come into being with the first optimizer call: one step is built and thrown away unrun. */
static an_status make_moments(an_err *err, an_session *r)
{
    const size_t n = (size_t)(r->cfg.batch_size * r->cfg.block_size);
    int32_t *zeros = calloc(n, sizeof *zeros);
    if (!zeros) return an_fail_nomem(err, "a batch", n * sizeof *zeros);
    an_step_build(r->cx, r->model, &r->cfg, 0, r->cfg.gradient_accumulation_steps - 1, zeros, zeros);
    an_step_kept(r->cx, &r->cfg); /* an evaluation's too: all that persists is known from here on */
    free(zeros);
    an_status status = an_session_fault(err, r->cx);
    an_reset(r->cx);
    return status;
}

static an_status read_tensor(an_err *err, const an_st *from, an_session *r, int i, const an_persist *p)
{
    const an_st_tensor *t;
    size_t bytes = an_dtype_size(p->dtype);
    int64_t dim[8];
    memcpy(dim, p->shape.dim, sizeof dim);
    /* A model with a shorter context than its weights takes the first rows of the table of positions. */
    if (strcmp(p->name, "transformer.wpe.weight") == 0 && (t = an_st_find(from, p->name)) != NULL && t->rank == 2)
        dim[0] = AN_MAX(dim[0], t->shape[0]);
    AN_TRY(an_ckpt_expect(err, from, "", p->name, p->dtype, p->shape.rank, dim, &t));
    for (int axis = 0; axis < p->shape.rank; axis++) bytes *= (size_t)p->shape.dim[axis];
    return an_session_result(err, r->cx, an_persist_write(r->cx, i, t->data, bytes));
}

/* The optimizer's own states, of float16's loss scale, go where the moments go. */
static bool is_optimizers(const an_persist *p)
{
    return p->kind == 1 || strncmp(p->name, "optimizer.", 10) == 0;
}

/* A run that was begun in another dtype, or by an older anneal, says nothing about the loss scale: that begins anew.
 * Its updates count all the same (see an_scaler_mass). */
static an_status count_updates(an_err *err, an_session *r)
{
    const char *const name[] = {"optimizer.mass1", "optimizer.mass2"};
    const double beta[] = {r->cfg.beta1, r->cfg.beta2};
    for (int i = 0; i < 2; i++) {
        double left = 1;
        for (int64_t t = 0; t < r->step && left > 0; t++) left *= beta[i];
        const float mass = (float)(1 - left);
        AN_TRY(an_session_result(err, r->cx,
                                 an_persist_write(r->cx, an_persist_find(r->cx, name[i]), &mass, sizeof mass)));
    }
    return AN_OK;
}

static an_status read_tensors(an_err *err, const an_st *from, an_session *r, bool moments)
{
    const int n = an_persist_count(r->cx);
    for (int i = 0; i < n; i++) {
        an_persist p;
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, &p)));
        if (p.kind == 2 && !an_st_find(from, p.name)) continue;
        if (p.kind == 0 || (is_optimizers(&p) && moments)) AN_TRY(read_tensor(err, from, r, i, &p));
    }
    return AN_OK;
}

static an_status read_progress(an_err *err, const an_st *from, an_session *r)
{
    const char *path = an_st_path(from), *text = an_st_meta(from, AN_CKPT_STATE);
    if (!text) return an_fail(err, AN_E_IO, "%s: no state of a run in it: weights only, which init_from= takes", path);
    json_t *state;
    AN_TRY(an_json_parse(err, path, 0, text, strlen(text), &state));
    const json_t *best = json_object_get(state, "best_val");
    const json_int_t train = json_integer_value(json_object_get(state, "train_tokens"));
    const json_int_t val = json_integer_value(json_object_get(state, "val_tokens"));
    const bool counted = json_object_get(state, "train_tokens") != NULL; /* nanoGPT's ckpt.pt does not say */
    const char *xxh3[] = {json_string_value(json_object_get(state, "train_xxh3")),
                          json_string_value(json_object_get(state, "val_xxh3"))};
    bool same = true;
    for (int split = 0; split < AN_N_SPLITS; split++)
        same &= !xxh3[split] || !*xxh3[split] || strcmp(xxh3[split], r->data_xxh3[split]) == 0;
    r->step = json_is_integer(json_object_get(state, "step")) ? json_integer_value(json_object_get(state, "step")) : -1;
    r->best_val = json_is_number(best) ? json_number_value(best) : INFINITY;
    r->best_step = json_integer_value(json_object_get(state, "best_step"));
    json_decref(state);
    if (r->step < 0) return an_fail(err, AN_E_IO, "%s: the run's state says no number of updates", path);
    if (!r->data || !counted) return AN_OK;
    if (!strcmp(r->cfg.data, "corpus") && (train != an_data_tokens(r->data, AN_TRAIN) || !same))
        return an_fail(err, AN_E_DATA,
                       "%s: the run began on the built-in text of another build of anneal; go on with that program, or "
                       "learn from another text with train init_from=%s data=FILE",
                       path, path);
    if (train != an_data_tokens(r->data, AN_TRAIN) || val != an_data_tokens(r->data, AN_VAL))
        return an_fail(err, AN_E_DATA,
                       "%s: the run began with %lld and %lld tokens, %s has %lld and %lld now; set data=", path,
                       (long long)train, (long long)val, r->cfg.data, (long long)an_data_tokens(r->data, AN_TRAIN),
                       (long long)an_data_tokens(r->data, AN_VAL));
    if (same) return AN_OK;
    return an_fail(
        err, AN_E_DATA,
        "%s: %s has as many tokens as the run began with, but other ones; set data=, or train with init_from= "
        "to learn from these",
        path, r->cfg.data);
}

an_status an_session_config(an_err *err, const an_st *from, an_train_config *out)
{
    const char *json = an_st_meta(from, AN_CKPT_CONFIG);
    if (!json)
        return an_fail(err, AN_E_IO, "%s: no settings of a run in it: it was not written by anneal train",
                       an_st_path(from));
    memset(out, 0, sizeof *out);
    AN_TRY(an_config_defaults(err, &an_train_keys, out));
    AN_TRY(an_config_from_json(err, &an_train_keys, out, an_st_path(from), json, strlen(json)));
    an_train_config_untrusted(out);
    return an_train_config_check(err, out);
}

/* `initial`: weights to start from, of a new run. */
static an_status open_parts(an_err *err, const an_st *from, const an_st *initial, int flags, an_session *r)
{
    AN_TRY(open_tokenizer(err, from ? from : initial, r));
    if (flags & AN_RUN_DATA) AN_TRY(open_data(err, flags & AN_RUN_WHOLE_FILE, r));
    AN_TRY(settle_vocabulary(err, r));
    AN_TRY(an_train_config_check(err, &r->cfg));
    AN_TRY(open_context(err, r));
    if (flags & AN_RUN_PARAMETERS_ONLY) return from ? read_tensors(err, from, r, false) : AN_OK;
    for (int split = 0; r->data && split < AN_N_SPLITS; split++) an_proof_data(r->data, split, r->data_xxh3[split]);
    AN_TRY(make_moments(err, r));
    if (!from) return initial ? read_tensors(err, initial, r, false) : AN_OK;
    AN_TRY(read_tensors(err, from, r, true));
    AN_TRY(read_progress(err, from, r));
    return r->cfg.dtype == AN_F16 && !an_st_find(from, "optimizer.mass1") ? count_updates(err, r) : AN_OK;
}

static an_status open_all(an_err *err, const an_st *from, int flags, an_session *r)
{
    an_st *initial = NULL;
    if (!from) AN_TRY(an_init_weights_open(err, &r->cfg, flags & AN_RUN_PARAMETERS_ONLY, &initial));
    an_status status = open_parts(err, from, initial, flags, r);
    an_st_close(initial);
    return status;
}

an_status an_session_open(an_err *err, const an_train_config *c, const an_st *from, int flags, an_session **out)
{
    *out = NULL;
    an_session *r = calloc(1, sizeof *r);
    if (!r) return an_fail_nomem(err, "a run", sizeof *r);
    r->cfg = *c;
    r->best_val = INFINITY;
    an_status status = open_all(err, from, flags, r);
    if (status == AN_OK)
        *out = r;
    else
        an_session_close(r);
    return status;
}

void an_session_close(an_session *r)
{
    if (!r) return;
    an_gpt_close(r->model);
    an_close(r->cx);
    an_data_close(r->data);
    an_tokenizer_free(r->own_tokenizer);
    free(r);
}

/* ---- writing a checkpoint */

/* One tensor of the context, read whole into a buffer that all of them share and given piece by piece. */
typedef struct shared_buffer {
    char *data;
    size_t capacity;
    int holds; /* index of the tensor in it, -1: none */
} shared_buffer;

typedef struct source {
    an_ctx *cx;
    shared_buffer *buffer;
    int index;
    size_t bytes;
} source;

static an_status read_source(an_err *err, void *arg, uint64_t at, void *out, size_t bytes)
{
    const source *s = arg;
    shared_buffer *b = s->buffer;
    if (b->capacity < s->bytes) {
        char *more = realloc(b->data, s->bytes);
        if (!more) return an_fail_nomem(err, "a tensor on its way to a checkpoint", s->bytes);
        b->data = more;
        b->capacity = s->bytes;
        b->holds = -1;
    }
    if (b->holds != s->index) {
        AN_TRY(an_session_result(err, s->cx, an_persist_read(s->cx, s->index, b->data, s->bytes)));
        b->holds = s->index;
    }
    memcpy(out, b->data + at, bytes);
    return AN_OK;
}

static an_status list_tensors(an_err *err, an_session *r, shared_buffer *buffer, an_ckpt_tensor *tensors,
                              an_persist *persist, source *sources, size_t *out_n)
{
    const int n = an_persist_count(r->cx);
    for (int i = 0; i < n; i++) {
        an_persist *p = &persist[*out_n];
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, p)));
        if (p->kind > 0 && !is_optimizers(p)) continue;
        size_t bytes = an_dtype_size(p->dtype);
        for (int axis = 0; axis < p->shape.rank; axis++) bytes *= (size_t)p->shape.dim[axis];
        sources[*out_n] = (source){r->cx, buffer, i, bytes};
        tensors[*out_n] = (an_ckpt_tensor){.name = p->name,
                                           .dtype = p->dtype,
                                           .rank = p->shape.rank,
                                           .shape = p->shape.dim,
                                           .read = read_source,
                                           .arg = &sources[*out_n]};
        ++*out_n;
    }
    return AN_OK;
}

static void state_json(const an_session *r, an_text *out)
{
    an_text_printf(out, "{\"anneal\":\"%s\",\"step\":%lld,\"best_val\":", AN_VERSION, (long long)r->step);
    if (isfinite(r->best_val))
        an_text_printf(out, "%.17g", r->best_val);
    else
        an_text_puts(out, "null");
    an_text_printf(out, ",\"best_step\":%lld,\"train_tokens\":%lld,\"val_tokens\":%lld", (long long)r->best_step,
                   (long long)an_data_tokens(r->data, AN_TRAIN), (long long)an_data_tokens(r->data, AN_VAL));
    an_text_printf(out, ",\"train_xxh3\":\"%s\",\"val_xxh3\":\"%s\"}", r->data_xxh3[AN_TRAIN], r->data_xxh3[AN_VAL]);
}

/* One file is written, the other names are links to it. `last` comes at the end: a run killed in between resumes from
 * the checkpoint before, does the same steps again and writes the same files. */
static an_status write_names(an_err *err, const an_session *r, const an_ckpt *what, bool improved)
{
    char numbered[32];
    const char *dir = r->cfg.out;
    snprintf(numbered, sizeof numbered, "step_%lld", (long long)r->step);
    const bool keep = r->cfg.keep != 0 && r->step > 0;
    const char *first = keep ? numbered : improved ? "best" : "last";
    AN_TRY(an_ckpt_save(err, dir, first, what));
    if (improved && strcmp(first, "best") != 0) AN_TRY(an_ckpt_link(err, dir, first, "best"));
    if (strcmp(first, "last") != 0) AN_TRY(an_ckpt_link(err, dir, first, "last"));
    return an_ckpt_prune(err, dir, (int)r->cfg.keep);
}

static an_status save_tensors(an_err *err, an_session *r, const an_ckpt_meta *meta, size_t n_meta, bool improved)
{
    const size_t n = (size_t)an_persist_count(r->cx);
    an_ckpt_tensor *tensors = calloc(n + 1, sizeof *tensors);
    an_persist *persist = calloc(n + 1, sizeof *persist);
    source *sources = calloc(n + 1, sizeof *sources);
    shared_buffer buffer = {.holds = -1};
    an_ckpt what = {.tensors = tensors, .meta = meta, .n_meta = n_meta};
    an_status status = tensors && persist && sources
                           ? list_tensors(err, r, &buffer, tensors, persist, sources, &what.n_tensors)
                           : an_fail_nomem(err, "a checkpoint's table", n * sizeof *tensors);
    if (status == AN_OK) status = write_names(err, r, &what, improved);
    free(buffer.data);
    free(sources);
    free(persist);
    free(tensors);
    return status;
}

an_status an_session_save(an_err *err, an_session *r, bool improved)
{
    an_text config = {0}, state = {0}, tokenizer = {0};
    state_json(r, &state);
    an_status status = an_config_json(err, &an_train_keys, &r->cfg, &config);
    if (status == AN_OK && r->tokenizer) status = an_tokenizer_json(err, r->tokenizer, &tokenizer);
    if (status == AN_OK && (state.failed || config.failed || tokenizer.failed))
        status = an_fail_nomem(err, "a checkpoint's metadata", config.len + tokenizer.len);
    const an_ckpt_meta meta[] = {
        {AN_CKPT_CONFIG, config.data}, {AN_CKPT_STATE, state.data}, {AN_CKPT_TOKENIZER, tokenizer.data}};
    if (status == AN_OK) status = save_tensors(err, r, meta, r->tokenizer ? 3 : 2, improved);
    an_text_free(&tokenizer);
    an_text_free(&state);
    an_text_free(&config);
    return status;
}

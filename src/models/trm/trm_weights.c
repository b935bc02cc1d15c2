/* trm_weights.c: the names and shapes of TinyRecursiveModels' state dicts. See trm_weights.h. */
#include "models/trm/trm_weights.h"
#include "io/checkpoint.h"
#include "io/config/config.h"
#include "io/formats/json.h"
#include "io/formats/torch_file.h"
#include "models/trm/trm_export.h"
#include "models/trm/trm_model.h"
#include "models/trm/trm_settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char compiled[] = "_orig_mod.", inner[] = "model.inner.";

static const char *without(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : name;
}

static const char *own_name(const char *name)
{
    return without(without(without(name, compiled), inner), "inner.");
}

static const an_st_tensor *find(const an_st *st, const char *name)
{
    for (size_t i = 0; i < an_st_count(st); i++)
        if (strcmp(own_name(an_st_tensor_at(st, i)->name), name) == 0) return an_st_tensor_at(st, i);
    return NULL;
}

bool an_trm_weights_are_ours(const an_st *raw)
{
    return find(raw, "H_init") && find(raw, "L_init") && find(raw, "embed_tokens.embedding_weight");
}

/* ---- settings: all_config.yaml beside the file, then what shapes say */

static int64_t dim(const an_st_tensor *t, int axis)
{
    return t && axis < t->rank ? t->shape[axis] : 0;
}

static int64_t count_layers(const an_st *raw)
{
    char name[96];
    int64_t n = 0;
    do snprintf(name, sizeof name, "L_level.layers.%d.mlp.down_proj.weight", (int)n);
    while (find(raw, name) && n++ < 256);
    return n;
}

/* *data: where the file beside says that its data are (an_list). */
static an_status settings_of(an_err *err, const an_st *raw, an_trm_settings *s, an_text *data)
{
    const an_st_tensor *embed = find(raw, "embed_tokens.embedding_weight"), *table = find(raw, "puzzle_emb.weights");
    const an_st_tensor *mix = find(raw, "L_level.layers.0.mlp_t.gate_up_proj.weight");
    AN_TRY(an_config_defaults(err, an_trm_model.keys, s));
    AN_TRY(an_trm_settings_beside(err, an_st_path(raw), s, data));
    s->vocab_size = dim(embed, 0);
    s->hidden_size = dim(embed, 1);
    s->L_layers = count_layers(raw);
    s->mlp_t = mix != NULL;
    s->tie_head = find(raw, "lm_head.weight") == NULL;
    s->causal |= find(raw, "q_head.weight") == NULL; /* all_config.yaml may say so of a file with a Q head */
    s->puzzles = table ? dim(table, 0) : 1;
    s->puzzle_emb_ndim = dim(table, 1);
    if (find(raw, "embed_pos.embedding_weight")) snprintf(s->pos_encodings, sizeof s->pos_encodings, "learned");
    if (mix) {
        an_trm_config c = an_trm_config_from(s);
        s->seq_len = dim(mix, 1) - an_trm_prefix(&c);
        if (strcmp(s->pos_encodings, "rope") == 0) snprintf(s->pos_encodings, sizeof s->pos_encodings, "none");
    }
    const an_trm_config c = an_trm_config_from(s);
    const char *fault = an_trm_fault(&c);
    if (!fault) return AN_OK;
    return an_fail(err, AN_E_IO, "%s: %s; the file is damaged, or the all_config.yaml beside it is of another",
                   an_st_path(raw), fault);
}

/* ---- tensors under our names */

typedef struct content {
    an_st *raw;
    an_arena arena; /* converted tensors */
} content;

static void release(void *owner)
{
    content *c = owner;
    an_st_close(c->raw);
    an_arena_free(&c->arena);
    free(c);
}

/* States are in the forward dtype there, and float32 here. */
static an_status convert(an_err *err, content *c, an_st_tensor *t)
{
    if (t->dtype == AN_F32) return AN_OK;
    if (t->dtype != AN_BF16)
        return an_fail(err, AN_E_UNSUPPORTED, "%s: byte %llu: %s is %s; float32 or bfloat16 is needed",
                       an_st_path(c->raw), (unsigned long long)t->at, t->name, an_dtype_text(t->dtype));
    const size_t n = t->bytes / 2;
    uint32_t *wide = AN_NEW_ARRAY(&c->arena, uint32_t, n + 1);
    if (!wide) return an_fail_nomem(err, t->name, n * 4);
    an_st_widen(t, n, wide);
    t->data = (const void *)wide;
    t->bytes = n * 4;
    t->dtype = AN_F32;
    return AN_OK;
}

/* Every tensor of the file belongs to the model that a small graph of these settings declares, and none is missing. */
static an_status check_names(an_err *err, const an_st *raw, const an_trm_settings *s)
{
    static const char *const known[] = {"H_init",
                                        "L_init",
                                        "embed_tokens.embedding_weight",
                                        "lm_head.weight",
                                        "q_head.weight",
                                        "q_head.bias",
                                        "puzzle_emb.weights",
                                        "embed_pos.embedding_weight"};
    static const char *const parts[] = {"self_attn.qkv_proj.weight", "self_attn.o_proj.weight",
                                        "mlp_t.gate_up_proj.weight", "mlp_t.down_proj.weight",
                                        "mlp.gate_up_proj.weight",   "mlp.down_proj.weight"};
    for (size_t i = 0; i < an_st_count(raw); i++) {
        const an_st_tensor *t = an_st_tensor_at(raw, i);
        const char *name = own_name(t->name);
        int layer = -1, used = 0;
        bool found = false;
        for (size_t k = 0; k < AN_COUNT(known); k++) found |= strcmp(name, known[k]) == 0;
        if (sscanf(name, "L_level.layers.%d.%n", &layer, &used) == 1 && used && layer >= 0 && layer < s->L_layers)
            for (size_t k = s->mlp_t ? 2 : 0; k < AN_COUNT(parts); k++)
                found |= (s->mlp_t || k < 2 || k > 3) && strcmp(name + used, parts[k]) == 0;
        if (!found)
            return an_fail(err, AN_E_IO, "%s: byte %llu: a tensor named %.128s is none of TinyRecursiveModels'",
                           an_st_path(raw), (unsigned long long)t->at, t->name);
    }
    for (int64_t layer = 0; layer < s->L_layers; layer++)
        for (size_t k = 0; k < AN_COUNT(parts); k++) {
            char name[96];
            snprintf(name, sizeof name, "L_level.layers.%d.%s", (int)layer, parts[k]);
            if ((k < 4 && (k < 2) == s->mlp_t) || find(raw, name)) continue;
            return an_fail(err, AN_E_IO, "%s: it has no tensor %s", an_st_path(raw), name);
        }
    return AN_OK;
}

static an_status import(an_err *err, content *c, an_text *data, an_text *config, an_st_tensor **out, size_t *out_n)
{
    an_trm_settings s;
    AN_TRY(settings_of(err, c->raw, &s, data));
    AN_TRY(check_names(err, c->raw, &s));
    const size_t n = an_st_count(c->raw);
    an_st_tensor *t = AN_NEW_ARRAY(&c->arena, an_st_tensor, n + 1);
    if (!t) return an_fail_nomem(err, an_st_path(c->raw), n * sizeof *t);
    *out_n = 0;
    for (size_t i = 0; i < n; i++) {
        an_st_tensor *to = &t[*out_n];
        *to = *an_st_tensor_at(c->raw, i);
        to->name = own_name(to->name);
        if (s.causal && strncmp(to->name, "q_head.", 7) == 0) continue; /* causal models do not read theirs */
        AN_TRY(convert(err, c, to));
        ++*out_n;
    }
    *out = t;
    AN_TRY(an_config_json(err, an_trm_model.keys, &s, config));
    /* {"arch...": ...} becomes {"model":"trm", ...} */
    an_text whole = {0};
    an_text_printf(&whole, "{\"model\":\"%s\",\"task\":\"%s\",", an_trm_model.name,
                   s.causal ? "chat" : an_trm_model.task);
    if (data->len > 0 && data->len < AN_CONFIG_TEXT_BYTES) {
        an_text_puts(&whole, "\"data\":");
        an_json_put(&whole, data->data);
        an_text_puts(&whole, ",");
    }
    an_text_puts(&whole, config->data ? config->data + 1 : "");
    an_text_free(config);
    *config = whole;
    return config->failed ? an_fail_nomem(err, an_st_path(c->raw), config->len) : AN_OK;
}

an_status an_trm_weights_import(an_err *err, an_st *raw, an_st **out)
{
    *out = NULL;
    if (an_st_meta(raw, AN_CKPT_CONFIG)) return *out = raw, AN_OK;
    content *c = calloc(1, sizeof *c);
    if (!c) {
        an_st_close(raw);
        return an_fail_nomem(err, "weights", sizeof *c);
    }
    c->raw = raw;
    an_text config = {0}, data = {0};
    an_st_tensor *tensors = NULL;
    size_t n = 0;
    an_status status = import(err, c, &data, &config, &tensors, &n);
    if (status == AN_OK) {
        const char *meta[1][2] = {{AN_CKPT_CONFIG, config.data}};
        const an_st_view view = {tensors, n, (const char *const(*)[2])meta, 1, c, release};
        status = an_st_open_view(err, an_st_path(raw), &view, out);
    } else {
        release(c);
    }
    an_text_free(&config);
    an_text_free(&data);
    return status;
}

/* ---- export */

static an_status add_weights(an_err *err, const an_st *st, const char *prefix, an_st_writer *w)
{
    char name[512];
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_at(st, i);
        if (!an_trm_is_weight(t->name)) continue;
        snprintf(name, sizeof name, "%s%s", prefix, t->name);
        AN_TRY(an_st_add(err, w, name, t->dtype, t->rank, t->shape, t->data));
    }
    const char *settings = an_st_meta(st, AN_CKPT_CONFIG);
    AN_TRY(an_st_set_meta(err, w, "format", "pt"));
    return settings && !*prefix ? an_st_set_meta(err, w, AN_CKPT_CONFIG, settings) : AN_OK;
}

an_status an_trm_weights_write(an_err *err, const an_st *st, const char *layout, const char *path)
{
    an_st_writer *w;
    if (strcmp(layout, "torch") == 0) return an_trm_export_torch(err, st, inner, path);
    if (strcmp(layout, "torch_compiled") == 0) return an_trm_export_torch(err, st, "_orig_mod.model.inner.", path);
    AN_TRY(an_st_begin(err, path, &w));
    an_status status = add_weights(err, st, strcmp(layout, "trm") == 0 ? inner : "", w);
    if (status == AN_OK) return an_st_commit(err, w);
    an_st_abort(w);
    return status;
}

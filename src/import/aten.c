/* aten.c: rows, arguments, and the error that lists missing operations. See aten.h. */
#include "import/aten.h"
#include "import/rules.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const an_aten an_aten_rows[] = {
#define AN_ATEN(name, rule, kind, schema, meaning) {name, rule, kind, schema, meaning},
#include "import/aten.def"
};
const size_t an_aten_n_rows = AN_COUNT(an_aten_rows);

static const an_aten *find(const char *name)
{
    for (size_t i = 0; i < an_aten_n_rows; i++)
        if (strcmp(an_aten_rows[i].name, name) == 0) return &an_aten_rows[i];
    return NULL;
}

const an_aten *an_aten_find(const char *target, bool *in_place)
{
    char name[128];
    const an_aten *row = find(target);
    *in_place = false;
    if (row) return row;
    const char *dot = strncmp(target, "aten.", 5) == 0 ? strchr(target + 5, '.') : NULL;
    if (!dot || dot < target + 7 || dot[-1] != '_' || dot[-2] == '_' || strlen(target) >= sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)(dot - target - 1), target, dot);
    *in_place = true;
    return find(name);
}

int an_aten_written(const an_pt2_node *n)
{
    if (n->in_place) return 0;
    return n->rule->rule == an_rule_div_out ? 2 : -1;
}

/* ---- arguments */

/* Parses the default in a schema, from `text` up to a blank. */
static void read_default(const char *text, size_t n, an_pt2_arg *out, an_arena *arena)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    *out = (an_pt2_arg){.kind = AN_ARG_NONE, .number = {.symbol = -1}};
    if (strcmp(word, "None") == 0) return;
    if (strcmp(word, "True") == 0 || strcmp(word, "False") == 0) {
        out->kind = AN_ARG_BOOL;
        out->number.i = word[0] == 'T';
        out->number.f = (double)out->number.i;
        return;
    }
    if (word[0] == '[') {
        out->kind = AN_ARG_INTS;
        out->numbers = AN_NEW_ARRAY(arena, an_pt2_number, 8);
        for (char *at = word + 1; out->numbers && *at && *at != ']' && out->n < 8;) {
            const int64_t i = strtoll(at, &at, 10);
            out->numbers[out->n++] = (an_pt2_number){.i = i, .f = (double)i, .symbol = -1};
            if (*at == ',') at++;
        }
        return;
    }
    if (word[0] == '\'') {
        out->kind = AN_ARG_TEXT;
        out->text = an_arena_printf(arena, "%.*s", (int)strlen(word) - 2, word + 1);
        return;
    }
    out->kind = strpbrk(word, ".e") ? AN_ARG_FLOAT : AN_ARG_INT;
    out->number.f = strtod(word, NULL);
    out->number.i = (int64_t)out->number.f;
}

/* Whether `name` is one of those in `names`: "grad/grad_output", as two versions of PyTorch call it. */
static bool is_called(const char *name, const char *names, size_t length)
{
    for (size_t at = 0, word; at <= length; at += word + 1) {
        word = strcspn(names + at, "/ =");
        if (strlen(name) == word && strncmp(name, names + at, word) == 0) return true;
    }
    return false;
}

/* The argument of this name or, where the file names none, at this place. In place, PyTorch calls the first one self,
 * also where the operation itself calls it input. */
static const an_pt2_arg *given(const an_pt2_node *n, const char *name, size_t length, int position)
{
    if (position == 0 && n->in_place && n->n_in > 0 && strcmp(n->in_name[0], "self") == 0) return &n->in[0];
    for (int32_t i = 0; i < n->n_in; i++)
        if (is_called(n->in_name[i], name, length)) return &n->in[i];
    return position < n->n_in && n->in_name[position][0] == 0 ? &n->in[position] : NULL;
}

static an_status resolve_args(an_err *err, const an_pt2_graph *g, an_pt2_node *n)
{
    int count = 0;
    n->arg = AN_NEW_ARRAY(g->arena, an_pt2_arg, AN_ATEN_MAX_ARGS);
    if (!n->arg) return an_fail_nomem(err, g->archive->path, 0);
    for (const char *at = n->rule->schema; *at && count < AN_ATEN_MAX_ARGS; count++) {
        const size_t word = strcspn(at, " "), name = strcspn(at, "= ");
        const an_pt2_arg *a = given(n, at, name, count);
        if (a)
            n->arg[count] = *a;
        else if (name < word)
            read_default(at + name + 1, word - name - 1, &n->arg[count], g->arena);
        else
            return an_fail(err, AN_E_IO, "%s: %.100s in %.100s lacks its argument %.*s; the file is damaged",
                           g->archive->path, n->target, n->module, (int)name, at);
        at += word;
        while (*at == ' ') at++;
    }
    for (int32_t i = 0; i < n->n_in; i++) { /* an argument that is not in the schema may change the meaning: refused */
        const char *found = n->in_name[i][0] ? strstr(n->rule->schema, n->in_name[i]) : n->rule->schema;
        if (i == 0 && n->in_place && strcmp(n->in_name[0], "self") == 0) continue; /* see given() */
        if (!found && n->in[i].kind != AN_ARG_NONE && n->in[i].kind != AN_ARG_OTHER)
            return an_fail(err, AN_E_UNSUPPORTED, "%s: %.100s in %.100s: its argument %.60s is not known here",
                           g->archive->path, n->target, n->module, n->in_name[i]);
    }
    return AN_OK;
}

/* Why an operation can have no row; NULL: it has none yet. */
static const char *reason(const char *target)
{
    static const char *const by_data[] = {"nonzero",
                                          "masked_select",
                                          "unique_dim",
                                          "_unique2",
                                          "unique_consecutive",
                                          "bincount",
                                          "argwhere",
                                          "item",
                                          "_local_scalar_dense",
                                          "repeat_interleave.Tensor",
                                          "where.default"};
    static const char *const complex_numbers[] = {"fft_",         "_fft_", "stft",   "istft", "view_as_complex",
                                                  "view_as_real", "polar", "complex"};
    if (strcmp(target, "higher_order.wrap_with_autocast") == 0)
        return "autocast inside of the model: leave it out, dtype=bfloat16 trains in mixed precision";
    if (strncmp(target, "aten.", 5) != 0) return NULL;
    for (size_t i = 0; i < AN_COUNT(by_data); i++) {
        const size_t n = strlen(by_data[i]);
        if (strncmp(target + 5, by_data[i], n) == 0 && (target[5 + n] == '.' || !target[5 + n]))
            return "its shape depends on data";
    }
    for (size_t i = 0; i < AN_COUNT(complex_numbers); i++)
        if (strncmp(target + 5, complex_numbers[i], strlen(complex_numbers[i])) == 0) return "complex numbers";
    return strstr(target, "ctc_loss") ? "its lengths are data" : NULL;
}

static an_status refuse_missing(an_err *err, const an_pt2_graph *g, int32_t kinds, int32_t all)
{
    an_text list = {0};
    int32_t named = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const an_pt2_node *n = &g->node[i];
        bool seen = n->rule != NULL;
        for (int32_t k = 0; k < i && !seen; k++) seen = !g->node[k].rule && strcmp(g->node[k].target, n->target) == 0;
        if (seen) continue;
        if (list.len > 700) continue;
        const char *why = reason(n->target);
        an_text_printf(&list, "%s%.80s", named++ ? "; " : "", n->target);
        if (why) an_text_printf(&list, " (%s)", why);
        if (n->module[0]) an_text_printf(&list, " in %.60s", n->module);
        if (n->place[0]) an_text_printf(&list, ", %.40s", n->place);
    }
    an_status status =
        list.failed
            ? an_fail_nomem(err, g->archive->path, 0)
            : an_fail(err, AN_E_UNSUPPORTED, "%s: %d of %d kinds of operations are not there: %s%s", g->archive->path,
                      (int)(kinds < named ? named : kinds), (int)all, list.data, named < kinds ? "; ..." : "");
    an_text_free(&list);
    return status;
}

static int by_target(const void *x, const void *y)
{
    const an_pt2_node *const *a = x, *const *b = y;
    return strcmp((*a)->target, (*b)->target);
}

/* The nodes in the order of their targets; free() it. NULL: no memory. */
static const an_pt2_node **sorted(const an_pt2_graph *g)
{
    const an_pt2_node **order = malloc(((size_t)g->n_nodes + 1) * sizeof *order);
    for (int32_t i = 0; order && i < g->n_nodes; i++) order[i] = &g->node[i];
    if (order) qsort(order, (size_t)g->n_nodes, sizeof *order, by_target);
    return order;
}

/* Systems of equations and decompositions lose too much in 16 bits: PyTorch's autocast computes them in float32, too. */
static bool is_full_precision(const char *target)
{
    static const char *const names[] = {"aten.linalg_inv",     "aten.linalg_solve", "aten.linalg_cholesky",
                                        "aten.linalg_slogdet", "aten.linalg_det",   "aten.linalg_eig",
                                        "aten.linalg_svd",     "aten.cholesky",     "aten.inverse",
                                        "aten.slogdet",        "aten.det."};
    for (size_t i = 0; i < AN_COUNT(names); i++)
        if (strncmp(target, names[i], strlen(names[i])) == 0) return true;
    return false;
}

an_status an_aten_resolve(an_err *err, an_pt2_graph *g)
{
    const an_pt2_node **order = sorted(g);
    int32_t missing = 0, kinds = 0;
    bool in_place;
    if (!order) return an_fail_nomem(err, g->archive->path, 0);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const bool again = i > 0 && strcmp(order[i]->target, order[i - 1]->target) == 0;
        an_pt2_node *n = &g->node[order[i] - g->node];
        n->rule = again ? order[i - 1]->rule : an_aten_find(n->target, &in_place);
        n->in_place = again ? order[i - 1]->in_place : in_place;
        n->without_autocast |= is_full_precision(n->target);
        kinds += !again;
        missing += !again && !order[i]->rule;
    }
    free(order);
    if (missing) return refuse_missing(err, g, missing, kinds);
    for (int32_t i = 0; i < g->n_nodes; i++) AN_TRY(resolve_args(err, g, &g->node[i]));
    return AN_OK;
}

void an_aten_list(const an_pt2_graph *g, an_text *out)
{
    const an_pt2_node **order = sorted(g);
    bool in_place;
    if (!order) out->failed = true;
    for (int32_t i = 0; order && i < g->n_nodes;) {
        int32_t count = 1;
        while (i + count < g->n_nodes && strcmp(order[i]->target, order[i + count]->target) == 0) count++;
        const an_aten *row = an_aten_find(order[i]->target, &in_place);
        an_text_printf(out, "%5d  %-44s  %s\n", (int)count, order[i]->target, row ? row->meaning : "MISSING");
        i += count;
    }
    free(order);
}

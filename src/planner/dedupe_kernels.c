/* dedupe_kernels.c: loop kernels → source text in the target's dialect; equal kernels become one.
 *
 * Layers of equal shape give equal texts: one kernel. Kernels that differ in extents alone, [7936] and [320], are two
 * kernels of one text, which is compiled once. Texts are compared whole; a hash table finds the candidate. */
#include "codegen/render.h"
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct text_table {
    int32_t *head, *next; /* kernels by hash of text, newest last; -1 ends a chain */
    uint64_t mask;
} text_table;

static an_status table_new(an_planner *w, text_table *t)
{
    const size_t n = (size_t)w->plan->n_kernels;
    size_t cap = 16;
    while (cap < 2 * n) cap *= 2;
    *t = (text_table){AN_NEW_ARRAY(&w->scratch, int32_t, cap), AN_NEW_ARRAY(&w->scratch, int32_t, n + 1), cap - 1};
    if (!t->head || !t->next) return an_fail_nomem(w->err, "rendered kernels", sizeof(int32_t) * cap);
    for (size_t i = 0; i < cap; i++) t->head[i] = -1;
    return AN_OK;
}

static bool same_extents(const an_loop_kernel *a, const an_loop_kernel *b)
{
    return a->shape == b->shape && a->rows == b->rows && a->cols == b->cols && a->red == b->red;
}

/* Gives kernel k the text. Returns the earlier kernel of the same text and extents, else k; -1: no memory. */
static int32_t share_text(an_planner *w, text_table *table, int32_t k, const an_text *text)
{
    an_kernel *mine = &w->plan->kernel[k];
    mine->key = an_hash(text->data, text->len, 0);
    int32_t *end = &table->head[mine->key & table->mask];
    for (; *end >= 0; end = &table->next[*end]) {
        const an_kernel *other = &w->plan->kernel[*end];
        if (other->key != mine->key || strcmp(other->text, text->data)) continue;
        if (same_extents(other->u.loop, mine->u.loop)) {
            mine->text = NULL;
            return *end;
        }
        mine->text = other->text;
    }
    if (!mine->text) mine->text = an_arena_strdup(w->arena, text->data);
    table->next[k] = -1;
    *end = k;
    return mine->text ? k : -1;
}

/* Names the first operation of the kernel that the dialect cannot express, and where it was built. */
static an_status refuse(an_planner *w, const an_loop_kernel *prog, const char *why)
{
    const char *dialect = w->rq->target->dialect;
    const struct an_tensor *n = NULL;
    for (int i = 0; i < prog->n_ins && !n; i++)
        if (prog->ins[i].dtype == AN_F64 && prog->ins[i].node >= 0) n = w->g->node[prog->ins[i].node];
    if (!n) return an_fail(w->err, AN_E_UNSUPPORTED, "%s: %s %s", dialect, prog->name, why);
    char shape[128];
    const char *scope = an_scope_of(w, n->id);
    return an_fail(w->err, AN_E_UNSUPPORTED, "%s: %s %s%s%s%s%s %s", dialect, an_ops[n->op].name,
                   an_shape_text(n->rank, n->shape, shape, sizeof shape), scope && *scope ? " of " : "",
                   scope ? scope : "", n->at ? " built at " : "", n->at ? n->at : "", why);
}

/* Renders each loop kernel; same[k] is the kernel that takes the place of k. */
static an_status render_all(an_planner *w, int32_t *same, an_text *text)
{
    an_plan *p = w->plan;
    const an_target *target = w->rq->target;
    text_table table;
    AN_TRY(table_new(w, &table));
    for (int32_t k = 0; k < p->n_kernels; k++) {
        same[k] = k;
        if (p->kernel[k].kind != AN_KERNEL_LOOP) continue;
        const an_loop_kernel *loop = p->kernel[k].u.loop;
        const char *why = an_render_refusal(target->dialect, loop);
        if (why && !target->fallback) return refuse(w, loop, why);
        an_text_clear(text);
        an_render(why ? "c" : target->dialect, loop, "NAME", false, text);
        same[k] = text->failed || !text->data ? -1 : share_text(w, &table, k, text);
        if (same[k] < 0) return an_fail_nomem(w->err, "rendered kernels", text->len);
    }
    return AN_OK;
}

an_status an_pass_render(an_planner *w)
{
    an_plan *p = w->plan;
    an_text text = {0};
    int32_t *same = AN_NEW_ARRAY(&w->scratch, int32_t, p->n_kernels + 1);
    if (!same) return an_fail_nomem(w->err, "rendered kernels", sizeof *same * (size_t)p->n_kernels);
    an_status status = render_all(w, same, &text);
    an_text_free(&text);
    for (int s = 0; status == AN_OK && s < p->n_steps; s++) {
        p->step[s].kernel = same[p->step[s].kernel];
        if (p->step[s].epilogue >= 0) p->step[s].epilogue = same[p->step[s].epilogue];
    }
    return status;
}

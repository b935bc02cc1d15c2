/* dump.c: what each pass decided, as text (dump=all, or names of passes.def; dump_dir).
 *
 *     liveness                              the graph, and how many of its nodes are live
 *     layout_hints ... insert_copies        nodes with strides, copies and row updates
 *     fuse ... layout                       groups with their members: `!` is stored, `~` recomputed for the backward pass
 *     schedule, remat_insert                launches in order: `+` extra outputs, `copy` a rematerialized copy
 *     lower                                 loop kernels, instruction by instruction
 *     assign_states ... cost_report         the plan: steps, arguments as SLOT:OFFSET, values with their lifetimes */
#include "planner/planner.h"
#include "planner/planner_internal.h"

#include <string.h>

static const char *const pass_names[] = {
#define AN_PASS(name) #name,
#include "planner/passes.def"
#undef AN_PASS
};

/* The next name of a list with commas; NULL behind the last. */
static const char *next_name(const char **list, size_t *n)
{
    const char *name = *list + strspn(*list, ", ");
    *n = strcspn(name, ", ");
    *list = name + *n;
    return *n ? name : NULL;
}

static bool is_name(const char *name, size_t n, const char *of)
{
    return strlen(of) == n && !strncmp(name, of, n);
}

bool an_dump_wants(const char *names, const char *pass)
{
    size_t n;
    for (const char *name; (name = next_name(&names, &n)) != NULL;)
        if (is_name(name, n, "all") || is_name(name, n, pass)) return true;
    return false;
}

an_status an_dump_check(an_err *err, const char *names)
{
    size_t n;
    for (const char *name; (name = next_name(&names, &n)) != NULL;) {
        bool known = is_name(name, n, "all");
        for (size_t i = 0; i < AN_COUNT(pass_names); i++) known |= is_name(name, n, pass_names[i]);
        if (known) continue;
        an_text all = {0};
        for (size_t i = 0; i < AN_COUNT(pass_names); i++) an_text_printf(&all, ", %s", pass_names[i]);
        an_fail(err, AN_E_USAGE, "dump: \"%.*s\" is no pass of the planner; say all, or some of%s", (int)AN_MIN(n, 40),
                name, all.data ? all.data + 1 : "");
        an_text_free(&all);
        return AN_E_USAGE;
    }
    return AN_OK;
}

static const char *const kinds[] = {"elem",    "row",  "col",    "gemm", "attention", "attention_grad",
                                    "scatter", "call", "concat", "pack", "row_update"};

static void print_hints(const an_planner *w, an_text *out)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        const an_planner_node *wn = &w->node[id];
        const struct an_tensor *n = w->g->node[id];
        if (!wn->live || !(wn->stride || wn->as_copy || wn->row_update)) continue;
        an_text_printf(out, "node %d %s", id, an_ops[n->op].name);
        for (int i = 0; wn->stride && i < n->rank; i++)
            an_text_printf(out, "%s%lld", i ? "," : " strides ", (long long)wn->stride[i]);
        an_text_printf(out, "%s%s%s  %s\n", wn->transposed ? " transposed" : "", wn->as_copy ? " copy" : "",
                       wn->row_update ? " row_update" : "", an_scope_of(w, id));
    }
}

static void print_groups(const an_planner *w, an_text *out)
{
    for (int g = 0; g < w->n_groups; g++) {
        const an_fusion_group *gr = &w->group[g];
        const int32_t named = gr->n_out ? gr->out[gr->n_out - 1] : gr->anchor;
        if (gr->out && !gr->n_out) continue;
        an_text_printf(out, "group %d %s %lldx%lld", g, kinds[gr->kind], (long long)gr->rows, (long long)gr->cols);
        if (gr->red > 1) an_text_printf(out, " over %lld", (long long)gr->red);
        an_text_puts(out, ":");
        for (int32_t m = 0; m < gr->n_members; m++) {
            const an_planner_node *wn = &w->node[gr->member[m]];
            an_text_printf(out, " %d%s", gr->member[m], wn->stored ? wn->remat ? "~" : "!" : "");
        }
        an_text_printf(out, "  %s\n", an_scope_of(w, named));
    }
}

static void print_launches(const an_planner *w, an_text *out)
{
    for (int32_t i = 0; i < w->n_launches; i++) {
        const an_planned_launch *l = &w->launch[i];
        const an_fusion_group *gr = &w->group[l->group];
        if (l->copy >= 0) {
            an_text_printf(out, "copy of %d by the rule of group %d\n", l->copy, l->group);
            continue;
        }
        an_text_printf(out, "group %d %s", l->group, kinds[gr->kind]);
        for (int32_t o = 0; o < gr->n_remat; o++) an_text_printf(out, " + %d", gr->out[o]);
        an_text_puts(out, "\n");
    }
}

void an_dump_pass(const an_planner *w, const char *name, an_text *out)
{
    if (!strcmp(name, "liveness")) {
        an_graph_print(w->g, 0, out);
        an_text_printf(out, "%d of %d nodes are live\n", w->n_live, w->g->n);
    } else if (!strcmp(name, "schedule")) {
        for (int32_t i = 0; i < w->n_groups; i++) an_text_printf(out, "group %d\n", w->order[i]);
    } else if (!strcmp(name, "lower")) {
        for (int k = 0; k < w->plan->n_kernels; k++)
            if (w->plan->kernel[k].kind == AN_KERNEL_LOOP) an_loop_kernel_print(w->plan->kernel[k].u.loop, out);
    } else if (w->plan->n_steps) {
        an_plan_print(w->plan, out);
    } else if (w->launch) {
        print_launches(w, out);
    } else if (w->group) {
        print_groups(w, out);
    } else {
        print_hints(w, out);
    }
}

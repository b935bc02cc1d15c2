/* pt2_graph.c: JSON to nodes. See pt2_graph.h. */
#include "import/pt2_graph.h"
#include "base/map.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names of one graph: the whole one, or that of a region, which sees its own inputs only. */
typedef struct names {
    an_map tensors, symbols;
} names;

typedef struct reader {
    an_err *err;
    an_pt2_graph *g;
    const char *path;
    const char *at;      /* the node or list that is being read, for sentences */
    const json_t *metas; /* tensor_values of the graph that is being read */
    const json_t *program;
    const char *step[AN_PT2_STEPS]; /* the way to what is being read, from the program on */
    int n_steps;
    int depth;
    char place[AN_PT2_MAX_REGIONS + 2][24]; /* "#4711": texts of steps, of each depth */
    bool without_autocast;                  /* of the region that is being read */
} reader;

/* Adds a step; the text outlives the reading. */
static void into(reader *r, const char *step)
{
    if (r->n_steps < AN_PT2_STEPS) r->step[r->n_steps++] = step;
}

/* Place i of a list, until n_steps is set back. */
static void into_place(reader *r, size_t i)
{
    snprintf(r->place[r->depth], sizeof r->place[0], "#%zu", i);
    into(r, r->place[r->depth]);
}

static const char *place_in_file(const reader *r, char out[AN_PT2_PLACE])
{
    return an_pt2_place(r->g->archive, r->program, r->step, r->n_steps, out);
}

static an_status damaged(const reader *r, const char *what)
{
    char quoted[AN_QUOTED_BYTES], place[AN_PT2_PLACE];
    return an_fail(r->err, AN_E_IO, "%s: %s: at %s: %s; the file is damaged", r->path, place_in_file(r, place),
                   an_quoted(r->at, quoted), what);
}

/* A union's member that is not known, perhaps of a newer schema: refused, for what it says would be left out. */
static an_status unknown_kind(const reader *r, const char *what, const json_t *x)
{
    char quoted[AN_QUOTED_BYTES], key[AN_QUOTED_BYTES], place[AN_PT2_PLACE];
    void *first = json_object_iter((json_t *)x); /* a cast for jansson's iterator, which changes nothing */
    if (!first) return damaged(r, "a union is empty");
    return an_fail(r->err, AN_E_UNSUPPORTED, "%s: %s: at %s: %s is %s, a kind that is not known here", r->path,
                   place_in_file(r, place), an_quoted(r->at, quoted), what,
                   an_quoted(json_object_iter_key(first), key));
}

static an_status no_memory(const reader *r)
{
    return an_fail_nomem(r->err, r->path, 0);
}

/* ---- values */

static uint64_t key_of(const char *name)
{
    return an_hash(name, strlen(name), 0x7074);
}

static an_status read_meta(reader *r, const char *name, an_pt2_value *v)
{
    const json_t *meta = json_object_get(r->metas, name), *sizes = json_object_get(meta, "sizes"),
                 *strides = json_object_get(meta, "strides"), *dtype = json_object_get(meta, "dtype");
    const size_t n = json_array_size(sizes);
    if (!meta) return AN_OK; /* an output that nothing reads has none */
    if (!json_is_array(sizes) || n > AN_PT2_MAX_RANK) return damaged(r, "a value has too many axes, or no sizes");
    v->rank = (int)n;
    v->torch_dtype = (int)json_integer_value(dtype);
    v->contiguous = true;
    int64_t expected = 1;
    for (size_t i = n; i-- > 0;) {
        const json_t *size = json_array_get(sizes, i), *as_int = json_object_get(size, "as_int"),
                     *expr = json_object_get(size, "as_expr");
        v->symbolic[i] = as_int == NULL;
        if (!as_int) as_int = json_object_get(json_object_get(expr, "hint"), "as_int");
        v->dim[i] = json_is_integer(as_int) ? json_integer_value(as_int) : 1;
        if (v->dim[i] < 0 || v->dim[i] > INT32_MAX) return damaged(r, "a size is out of range");
        const json_t *stride = json_array_get(strides, i), *step = json_object_get(stride, "as_int");
        if (!step) step = json_object_get(json_object_get(json_object_get(stride, "as_expr"), "hint"), "as_int");
        v->step[i] = json_is_integer(step) ? json_integer_value(step) : expected;
        if (v->dim[i] != 1 && v->step[i] != expected) v->contiguous = false;
        expected = v->dim[i] > 0 && expected < INT64_MAX / v->dim[i] ? expected * v->dim[i] : 0;
    }
    return AN_OK;
}

static an_status add_value(reader *r, names *scope, const char *name, int32_t *out)
{
    an_pt2_graph *g = r->g;
    uint64_t there;
    if (an_map_get(&scope->tensors, key_of(name), &there)) return damaged(r, "a value is written twice");
    if (!an_grow((void **)&g->value, g->n_values, &g->cap_values, sizeof *g->value)) return no_memory(r);
    *out = g->n_values;
    g->value[g->n_values].name = name;
    AN_TRY(read_meta(r, name, &g->value[g->n_values++]));
    return an_map_set(&scope->tensors, key_of(name), (uint64_t)*out) ? AN_OK : no_memory(r);
}

static an_status find_value(reader *r, const names *scope, const char *name, int32_t *out)
{
    uint64_t at;
    if (!name || !an_map_get(&scope->tensors, key_of(name), &at))
        return damaged(r, "a value is read that nothing wrote before");
    *out = (int32_t)at;
    return AN_OK;
}

/* ---- arguments */

static an_status read_symbol(reader *r, names *scope, const json_t *name, bool defines, int32_t *out)
{
    const char *text = json_string_value(name);
    uint64_t at;
    if (!text) return damaged(r, "a symbol has no name");
    if (an_map_get(&scope->symbols, key_of(text), &at)) return *out = (int32_t)at, AN_OK;
    if (!defines) return damaged(r, "a symbol is read that nothing wrote before");
    *out = r->g->n_symbols++;
    return an_map_set(&scope->symbols, key_of(text), (uint64_t)*out) ? AN_OK : no_memory(r);
}

static an_status read_float(reader *r, const json_t *x, double *out)
{
    const char *text = json_string_value(x);
    if (json_is_number(x)) return *out = json_number_value(x), AN_OK;
    if (!text) return damaged(r, "a number is missing");
    *out = strcmp(text, "Infinity") == 0 ? INFINITY : strcmp(text, "-Infinity") == 0 ? -INFINITY : NAN;
    return isnan(*out) && strcmp(text, "NaN") != 0 ? damaged(r, "a number is missing") : AN_OK;
}

static an_status read_number(reader *r, names *scope, const json_t *x, bool defines, an_pt2_number *out)
{
    *out = (an_pt2_number){.symbol = -1};
    if (json_is_object(x) && json_object_get(x, "as_name"))
        return read_symbol(r, scope, json_object_get(x, "as_name"), defines, &out->symbol);
    if (json_is_object(x)) { /* {"as_int":3} */
        const json_t *inside = json_object_get(x, "as_int");
        if (!inside) inside = json_object_get(x, "as_float");
        if (!inside) inside = json_object_get(x, "as_bool");
        x = inside;
    }
    if (json_is_integer(x)) {
        out->i = json_integer_value(x);
        out->f = (double)out->i;
        return AN_OK;
    }
    if (json_is_boolean(x)) return out->f = (double)(out->i = json_is_true(x)), AN_OK;
    AN_TRY(read_float(r, x, &out->f));
    out->i = out->f > -9e18 && out->f < 9e18 ? (int64_t)out->f : 0;
    return AN_OK;
}

static an_status read_numbers(reader *r, names *scope, const json_t *list, an_pt2_arg *out)
{
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > AN_PT2_MAX_ARGS) return damaged(r, "a list is missing or too long");
    out->numbers = AN_NEW_ARRAY(r->g->arena, an_pt2_number, n + 1);
    if (!out->numbers) return no_memory(r);
    out->n = (int32_t)n;
    for (size_t i = 0; i < n; i++) AN_TRY(read_number(r, scope, json_array_get(list, i), false, &out->numbers[i]));
    return AN_OK;
}

static an_status read_tensor(reader *r, names *scope, const json_t *x, bool defines, int32_t *out)
{
    const char *name = json_string_value(json_object_get(x, "name"));
    if (!name) return damaged(r, "a tensor has no name");
    return defines ? add_value(r, scope, name, out) : find_value(r, scope, name, out);
}

static an_status read_tensors(reader *r, names *scope, const json_t *list, bool defines, an_pt2_arg *out)
{
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > AN_PT2_MAX_ARGS) return damaged(r, "a list is missing or too long");
    out->values = AN_NEW_ARRAY(r->g->arena, int32_t, n + 1);
    if (!out->values) return no_memory(r);
    out->n = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i), *optional = json_object_get(x, "as_tensor");
        out->values[i] = -1;
        if (json_object_get(x, "as_none")) continue;
        AN_TRY(read_tensor(r, scope, optional ? optional : x, defines, &out->values[i]));
    }
    return AN_OK;
}

/* A union is an object of one key, which says the kind. With `defines` it is a result, whose name is new. */
static an_status read_arg(reader *r, names *scope, const json_t *x, bool defines, an_pt2_arg *out)
{
    static const struct {
        const char *key;
        an_pt2_arg_kind kind;
    } kinds[] = {{"as_none", AN_ARG_NONE},
                 {"as_tensor", AN_ARG_TENSOR},
                 {"as_tensors", AN_ARG_TENSORS},
                 {"as_optional_tensor", AN_ARG_TENSOR},
                 {"as_optional_tensors", AN_ARG_TENSORS},
                 {"as_int", AN_ARG_INT},
                 {"as_sym_int", AN_ARG_INT},
                 {"as_ints", AN_ARG_INTS},
                 {"as_sym_ints", AN_ARG_INTS},
                 {"as_float", AN_ARG_FLOAT},
                 {"as_sym_float", AN_ARG_FLOAT},
                 {"as_floats", AN_ARG_FLOATS},
                 {"as_sym_floats", AN_ARG_FLOATS},
                 {"as_bool", AN_ARG_BOOL},
                 {"as_sym_bool", AN_ARG_BOOL},
                 {"as_bools", AN_ARG_INTS},
                 {"as_string", AN_ARG_TEXT},
                 {"as_scalar_type", AN_ARG_DTYPE},
                 {"as_layout", AN_ARG_OTHER},
                 {"as_memory_format", AN_ARG_OTHER},
                 {"as_device", AN_ARG_OTHER},
                 {"as_graph", AN_ARG_OTHER},
                 {"as_strings", AN_ARG_OTHER},
                 {"as_operator", AN_ARG_OTHER},
                 {"as_custom_obj", AN_ARG_OTHER}};
    const json_t *inside = NULL;
    size_t i = 0;
    *out = (an_pt2_arg){.kind = AN_ARG_NONE, .number = {.symbol = -1}};
    while (i < AN_COUNT(kinds) && !(inside = json_object_get(x, kinds[i].key))) i++;
    if (!inside) return unknown_kind(r, "an argument", x);
    out->kind = kinds[i].kind;
    switch (out->kind) {
    case AN_ARG_TENSOR:
        if (json_object_get(inside, "as_none")) return out->kind = AN_ARG_NONE, AN_OK;
        if (json_object_get(inside, "as_tensor")) inside = json_object_get(inside, "as_tensor");
        return read_tensor(r, scope, inside, defines, &out->value);
    case AN_ARG_TENSORS: return read_tensors(r, scope, inside, defines, out);
    case AN_ARG_INT:
    case AN_ARG_FLOAT:
    case AN_ARG_BOOL:
    case AN_ARG_DTYPE: return read_number(r, scope, inside, defines, &out->number);
    case AN_ARG_INTS:
    case AN_ARG_FLOATS: return read_numbers(r, scope, inside, out);
    case AN_ARG_TEXT: out->text = json_string_value(inside); return out->text ? AN_OK : damaged(r, "a text is missing");
    default: return AN_OK;
    }
}

/* ---- nodes */

/* "L__self__,,__main__.M;L__self___c,c,torch.nn.modules.conv.Conv2d": the path of the last module, "c". */
static const char *module_of(const reader *r, const json_t *metadata)
{
    const char *stack = json_string_value(json_object_get(metadata, "nn_module_stack"));
    if (!stack) return "";
    const char *last = strrchr(stack, ';'), *from = strchr(last ? last : stack, ',');
    const char *to = from ? strchr(from + 1, ',') : NULL;
    const char *copy = to ? an_arena_printf(r->g->arena, "%.*s", (int)AN_MIN(to - from - 1, 200), from + 1) : NULL;
    return copy ? copy : "";
}

/* The first line of the user's own code, as my.py:41: not one of PyTorch's. */
static const char *place_of(const reader *r, const json_t *metadata)
{
    const char *trace = json_string_value(json_object_get(metadata, "stack_trace")), *found = NULL;
    int n = 0, line = 0;
    for (const char *at = trace; at && (at = strstr(at, "File \"")) != NULL;) {
        at += 6;
        const char *end = strchr(at, '"'), *slash = at;
        int number;
        if (!end) break;
        for (const char *p = at; p < end; p++)
            if (*p == '/') slash = p + 1;
        if (sscanf(end, "\", line %9d", &number) == 1 && (!found || !strstr(at, "/torch/nn/"))) {
            const char *torch = strstr(at, "/torch/");
            if (!torch || torch > end || !found) found = slash, n = (int)AN_MIN(end - slash, 80), line = number;
        }
        at = end;
    }
    const char *copy = found ? an_arena_printf(r->g->arena, "%.*s:%d", n, found, line) : NULL;
    return copy ? copy : "";
}

static an_status new_node(reader *r, const char *target, int32_t n_in, int32_t n_out, an_pt2_node **out)
{
    an_pt2_graph *g = r->g;
    if (g->n_nodes >= AN_PT2_MAX_NODES)
        return an_fail(r->err, AN_E_UNSUPPORTED, "%s: more than %d operations", r->path, AN_PT2_MAX_NODES);
    if (!an_grow((void **)&g->node, g->n_nodes, &g->cap_nodes, sizeof *g->node)) return no_memory(r);
    an_pt2_node n = {.target = target, .n_in = n_in, .n_out = n_out, .module = "", .place = ""};
    n.in_name = AN_NEW_ARRAY(g->arena, const char *, n_in + 1);
    n.in = AN_NEW_ARRAY(g->arena, an_pt2_arg, n_in + 1);
    n.out = AN_NEW_ARRAY(g->arena, an_pt2_arg, n_out + 1);
    if (!n.in_name || !n.in || !n.out) return no_memory(r);
    *out = &g->node[g->n_nodes++];
    **out = n;
    return AN_OK;
}

static an_status read_nodes(reader *r, names *scope, const json_t *graph);

/* A result of a region: the same value, detached where the region has no gradients. */
static an_status leave_region(reader *r, names *scope, const json_t *result, int32_t inside, bool grad)
{
    an_pt2_node *n;
    AN_TRY(new_node(r, grad ? "aten.alias.default" : "aten.detach.default", 1, 1, &n));
    n->in_name[0] = "self";
    n->in[0] = (an_pt2_arg){.kind = AN_ARG_TENSOR, .value = inside};
    an_pt2_arg out;
    AN_TRY(read_arg(r, scope, result, true, &out));
    if (out.kind != AN_ARG_TENSOR) return damaged(r, "a region's result is no tensor");
    r->g->node[r->g->n_nodes - 1].out[0] = out;
    return AN_OK;
}

/* Binds the region's inputs to the node's arguments, puts its nodes here, then its results. */
static an_status read_region_in(reader *r, names *scope, names *inner, const json_t *node, const json_t *graph,
                                size_t before, bool grad)
{
    const json_t *inputs = json_object_get(graph, "inputs"), *outputs = json_object_get(graph, "outputs"),
                 *given = json_object_get(node, "inputs"), *results = json_object_get(node, "outputs");
    const json_t *metas = r->metas;
    size_t n_results = json_array_size(results);
    const json_t *first = json_array_get(results, 0), *list = json_object_get(first, "as_tensors");
    if (list) n_results = json_array_size(list);
    if (json_array_size(inputs) + before != json_array_size(given) || json_array_size(outputs) != n_results)
        return damaged(r, "a region has other inputs or results than its node");
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        an_pt2_arg outer;
        const json_t *input = json_array_get(inputs, i);
        const char *tensor = json_string_value(json_object_get(json_object_get(input, "as_tensor"), "name"));
        const char *symbol = json_string_value(json_object_get(json_object_get(input, "as_sym_int"), "as_name"));
        AN_TRY(read_arg(r, scope, json_object_get(json_array_get(given, i + before), "arg"), false, &outer));
        bool bound = true;
        if (outer.kind == AN_ARG_TENSOR && tensor)
            bound = an_map_set(&inner->tensors, key_of(tensor), (uint64_t)outer.value);
        else if (outer.kind == AN_ARG_INT && symbol && outer.number.symbol >= 0)
            bound = an_map_set(&inner->symbols, key_of(symbol), (uint64_t)outer.number.symbol);
        if (!bound) return no_memory(r);
    }
    const int steps = r->n_steps;
    const char *const way[] = {"inputs", before == 5 ? "#4" : "#1", "arg", "as_graph", "graph"};
    for (size_t i = 0; i < AN_COUNT(way); i++) into(r, way[i]);
    r->metas = json_object_get(graph, "tensor_values");
    AN_TRY(read_nodes(r, inner, graph));
    r->metas = metas;
    r->n_steps = steps;
    for (size_t i = 0; i < n_results; i++) {
        int32_t inside = -1;
        const json_t *name = json_object_get(json_object_get(json_array_get(outputs, i), "as_tensor"), "name");
        AN_TRY(find_value(r, inner, json_string_value(name), &inside));
        json_t *wrapped = list ? json_pack("{s:O}", "as_tensor", json_array_get(list, i)) : NULL;
        an_status status = leave_region(r, scope, list ? wrapped : json_array_get(results, i), inside, grad);
        json_decref(wrapped);
        AN_TRY(status);
    }
    return AN_OK;
}

/* Argument i of a node, of this kind ("as_bool"). */
static const json_t *argument(const json_t *node, size_t i, const char *kind)
{
    return json_object_get(json_object_get(json_array_get(json_object_get(node, "inputs"), i), "arg"), kind);
}

/* Whether a node is a region in which autocast is off: it computes in the file's dtypes whatever the precision policy is. */
static bool is_autocast_off(const char *target, const json_t *node)
{
    return strcmp(target, "higher_order.wrap_with_autocast") == 0 && json_is_false(argument(node, 2, "as_bool"));
}

/* Of wrap_with_set_grad_enabled (a flag, the graph, its arguments) or of wrap_with_autocast (device, dtype, whether it is on, a cache, the
 * graph, its arguments). */
static an_status read_region(reader *r, names *scope, const json_t *node, bool autocast)
{
    const json_t *flag = argument(node, autocast ? 2 : 0, "as_bool");
    const json_t *region = json_object_get(argument(node, autocast ? 4 : 1, "as_graph"), "graph");
    names inner = {{0}, {0}};
    if (!json_is_boolean(flag) || !json_is_object(region)) return damaged(r, "a region has no graph");
    if (++r->depth > AN_PT2_MAX_REGIONS) return damaged(r, "regions are nested too deep");
    const bool before = r->without_autocast;
    r->without_autocast |= autocast;
    an_status status = read_region_in(r, scope, &inner, node, region, autocast ? 5 : 2, autocast || json_is_true(flag));
    an_map_free(&inner.tensors);
    an_map_free(&inner.symbols);
    r->without_autocast = before;
    r->depth--;
    return status;
}

static an_status read_node(reader *r, names *scope, const json_t *node)
{
    const char *target = json_string_value(json_object_get(node, "target"));
    const json_t *in = json_object_get(node, "inputs"), *out = json_object_get(node, "outputs"),
                 *metadata = json_object_get(node, "metadata");
    an_pt2_node *n;
    r->at = target ? target : "a node";
    if (!target || json_array_size(in) > AN_PT2_MAX_ARGS || json_array_size(out) > AN_PT2_MAX_ARGS)
        return damaged(r, "a node has no target");
    if (strncmp(target, "torch.ops.", 10) == 0) target += 10;
    if (strcmp(target, "higher_order.wrap_with_set_grad_enabled") == 0) return read_region(r, scope, node, false);
    if (is_autocast_off(target, node)) return read_region(r, scope, node, true);
    AN_TRY(new_node(r, target, (int32_t)json_array_size(in), (int32_t)json_array_size(out), &n));
    n->module = module_of(r, metadata);
    n->place = place_of(r, metadata);
    n->without_autocast = r->without_autocast;
    for (int32_t i = 0; i < n->n_in; i++) {
        const json_t *one = json_array_get(in, (size_t)i);
        const char *name = json_string_value(json_object_get(one, "name"));
        n->in_name[i] = name ? name : "";
        AN_TRY(read_arg(r, scope, json_object_get(one, "arg"), false, &n->in[i]));
    }
    for (int32_t i = 0; i < n->n_out; i++) AN_TRY(read_arg(r, scope, json_array_get(out, (size_t)i), true, &n->out[i]));
    return AN_OK;
}

static an_status read_nodes(reader *r, names *scope, const json_t *graph)
{
    const json_t *nodes = json_object_get(graph, "nodes");
    if (!json_is_array(nodes)) return damaged(r, "there are no nodes");
    const int before = r->n_steps;
    into(r, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        into_place(r, i);
        AN_TRY(read_node(r, scope, json_array_get(nodes, i)));
        r->n_steps = before + 1;
    }
    r->n_steps = before;
    return AN_OK;
}

/* ---- inputs and outputs */

static an_status find_tensor(reader *r, const char *key, const json_t *spec, an_pt2_input *in)
{
    const bool constant = in->kind == AN_INPUT_CONSTANT || (in->kind == AN_INPUT_BUFFER && !in->persistent);
    char quoted[AN_QUOTED_BYTES], place[AN_PT2_PLACE];
    in->name = json_string_value(json_object_get(spec, key));
    if (!in->name) return damaged(r, "an input has no name");
    const an_pt2_tensor *t = an_pt2_find(r->g->archive, in->name, constant);
    if (!t) t = an_pt2_find(r->g->archive, in->name, !constant);
    if (!t)
        return an_fail(r->err, AN_E_IO, "%s: %s: the file has no tensor %s, which its graph reads; it is damaged",
                       r->path, place_in_file(r, place), an_quoted(in->name, quoted));
    in->tensor = (int32_t)(t - r->g->archive->tensor);
    return AN_OK;
}

static an_status read_input(reader *r, names *scope, const json_t *spec, an_pt2_input *in)
{
    const json_t *inside;
    *in = (an_pt2_input){.kind = AN_INPUT_USER, .value = -1, .tensor = -1};
    r->at = "input_specs";
    if ((inside = json_object_get(spec, "parameter"))) {
        in->kind = AN_INPUT_PARAMETER;
        AN_TRY(find_tensor(r, "parameter_name", inside, in));
    } else if ((inside = json_object_get(spec, "buffer"))) {
        in->kind = AN_INPUT_BUFFER;
        in->persistent = json_is_true(json_object_get(inside, "persistent"));
        AN_TRY(find_tensor(r, "buffer_name", inside, in));
    } else if ((inside = json_object_get(spec, "tensor_constant"))) {
        in->kind = AN_INPUT_CONSTANT;
        AN_TRY(find_tensor(r, "tensor_constant_name", inside, in));
    } else if ((inside = json_object_get(spec, "user_input"))) {
        const json_t *tensor = json_object_get(json_object_get(inside, "arg"), "as_tensor");
        in->name = json_string_value(json_object_get(tensor, "name"));
        return tensor ? read_tensor(r, scope, tensor, true, &in->value) : AN_OK;
    } else if (json_object_get(spec, "constant_input")) {
        return AN_OK;
    } else {
        return unknown_kind(r, "an input", spec);
    }
    return read_tensor(r, scope, json_object_get(inside, "arg"), true, &in->value);
}

static an_status read_output(reader *r, names *scope, const json_t *spec, an_pt2_output *out)
{
    const json_t *inside;
    const char *buffer = NULL;
    *out = (an_pt2_output){.kind = AN_OUTPUT_USER, .value = -1};
    r->at = "output_specs";
    if ((inside = json_object_get(spec, "user_output"))) {
        inside = json_object_get(json_object_get(inside, "arg"), "as_tensor");
        if (!inside) return AN_OK;
    } else if ((inside = json_object_get(spec, "loss_output"))) {
        out->kind = AN_OUTPUT_LOSS;
        inside = json_object_get(inside, "arg");
    } else if ((inside = json_object_get(spec, "buffer_mutation"))) {
        out->kind = AN_OUTPUT_BUFFER;
        buffer = json_string_value(json_object_get(inside, "buffer_name"));
        inside = json_object_get(inside, "arg");
        if (!buffer) return damaged(r, "a buffer that changes has no name");
    } else {
        return unknown_kind(r, "an output", spec);
    }
    AN_TRY(read_tensor(r, scope, inside, false, &out->value));
    out->name = buffer ? buffer : r->g->value[out->value].name;
    return AN_OK;
}

static an_status read_program(reader *r, names *scope, const json_t *program)
{
    an_pt2_graph *g = r->g;
    const json_t *module = json_object_get(program, "graph_module"), *graph = json_object_get(module, "graph"),
                 *signature = json_object_get(module, "signature"), *in = json_object_get(signature, "input_specs"),
                 *out = json_object_get(signature, "output_specs"), *verifiers = json_object_get(program, "verifiers");
    r->at = "graph_module";
    r->metas = json_object_get(graph, "tensor_values");
    for (size_t i = 0; i < json_array_size(verifiers); i++) {
        const char *text = json_string_value(json_array_get(verifiers, i));
        g->training_ir |= text && strcmp(text, "TRAINING") == 0;
    }
    g->input = AN_NEW_ARRAY(g->arena, an_pt2_input, json_array_size(in) + 1);
    g->output = AN_NEW_ARRAY(g->arena, an_pt2_output, json_array_size(out) + 1);
    if (!g->input || !g->output) return no_memory(r);
    into(r, "graph_module");
    into(r, "signature");
    into(r, "input_specs");
    for (size_t i = 0; i < json_array_size(in); i++, r->n_steps--) {
        into_place(r, i);
        AN_TRY(read_input(r, scope, json_array_get(in, i), &g->input[g->n_inputs++]));
    }
    r->n_steps = 1;
    into(r, "graph");
    AN_TRY(read_nodes(r, scope, graph));
    r->n_steps = 1;
    into(r, "signature");
    into(r, "output_specs");
    for (size_t i = 0; i < json_array_size(out); i++, r->n_steps--) {
        into_place(r, i);
        AN_TRY(read_output(r, scope, json_array_get(out, i), &g->output[g->n_outputs++]));
    }
    return AN_OK;
}

an_status an_pt2_graph_open(an_err *err, an_pt2 *archive, const json_t *program, an_pt2_graph *out)
{
    *out = (an_pt2_graph){.archive = archive, .arena = &archive->arena};
    reader r = {.err = err, .g = out, .path = archive->path, .at = "graph_module", .program = program};
    names scope = {{0}, {0}};
    an_status status = read_program(&r, &scope, program);
    an_map_free(&scope.tensors);
    an_map_free(&scope.symbols);
    return status;
}

void an_pt2_graph_close(an_pt2_graph *g)
{
    free(g->value);
    free(g->node);
    *g = (an_pt2_graph){0};
}

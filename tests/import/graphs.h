/* graphs.h: small graphs as text, and calls of them: for tests/import. */
#ifndef TESTS_IMPORT_GRAPHS_H
#define TESTS_IMPORT_GRAPHS_H

#include "lib/test.h"
#include <anneal_import.h>
#include <anneal_interop.h>
#include <stdio.h>
#include <string.h>

#define META(name, dtype, sizes) "\"" name "\":{\"dtype\":" #dtype ",\"sizes\":[" sizes "],\"strides\":[]}"
#define INT(n)                   "{\"as_int\":" #n "}"
#define TENSOR(name)             "{\"as_tensor\":{\"name\":\"" name "\"}}"
#define ARG(name, value)         "{\"name\":\"" name "\",\"arg\":" value "}"
#define NODE(target, in, out)    "{\"target\":\"" target "\",\"inputs\":[" in "],\"outputs\":[" out "],\"metadata\":{}}"
#define IN(name)                 "{\"user_input\":{\"arg\":" TENSOR(name) "}}"
#define OUT(name)                "{\"user_output\":{\"arg\":" TENSOR(name) "}}"
#define PROGRAM(metas, nodes, in, out)                                                                                 \
    "{\"schema_version\":{\"major\":8,\"minor\":0},\"verifiers\":[\"TRAINING\"],\"graph_module\":{"                    \
    "\"graph\":{\"nodes\":[" nodes "],\"tensor_values\":{" metas "}},\"signature\":{\"input_specs\":[" in              \
    "],\"output_specs\":[" out "]}}}"
#define NO_TENSORS                   "\"weights\":{\"config\":{}},\"constants\":{\"config\":{}}"
#define GRAPH(metas, nodes, in, out) "{\"model\":" PROGRAM(metas, nodes, in, out) "," NO_TENSORS "}"

typedef struct function {
    an_import *file;
    an_ctx *cx;
    an_import_model *m;
    char why[AN_IMPORT_WHY];
} function;

static inline void open_function(function *f, const char *text)
{
    *f = (function){0};
    f->file = an_import_open_description("graph", text, strlen(text), f->why);
    if (!f->file) fail_msg("%s", f->why);
    f->cx = an_open(&(an_options){.device = "cpu", .threads = 2, .recompute = "off"});
    f->m = an_import_bind(f->file, f->cx, f->why);
    if (!f->m) fail_msg("%s", f->why);
}

static inline void close_function(function *f)
{
    an_import_release(f->m);
    an_close(f->cx);
    an_import_close(f->file);
}

static inline an_import_array array(void *data, an_dtype dtype, int rank, const int64_t *dim, const int64_t *step)
{
    an_import_array a = {.data = data, .dtype = (int32_t)dtype, .rank = rank};
    int64_t next = 1;
    for (int i = rank; i-- > 0; next *= dim[i]) a.dim[i] = dim[i], a.step[i] = step ? step[i] : next;
    return a;
}

static inline void call(function *f, const an_import_array *in, an_import_array *out, void *const *data, int n)
{
    if (an_import_call_plan(f->m, in, out, f->why) != AN_OK) fail_msg("%s", f->why);
    for (int i = 0; i < n; i++) out[i].data = data[i];
    if (an_import_call(f->m, in, out, f->why) != AN_OK) fail_msg("%s", f->why);
}

/* A graph of one operation of x, y (float64) and i (int64), as many of them as n_in, whose result is z. */
static inline void open_operation(function *f, const char *target, const char *args, const an_import_array *in,
                                  int n_in)
{
    static const char *const name[] = {"x", "y", "i"};
    char text[8192], *at = text;
    const char *const end = text + sizeof text;
    at += snprintf(
        at, (size_t)(end - at),
        "{\"model\":{\"schema_version\":{\"major\":8,\"minor\":0},\"verifiers\":[\"TRAINING\"],\"graph_module\":"
        "{\"graph\":{\"nodes\":[{\"target\":\"%s\",\"inputs\":[%s],\"outputs\":[" TENSOR("z") "],\"metadata\":{}}],"
                                                                                              "\"tensor_values\":{",
        target, args);
    for (int k = 0; k < n_in; k++) {
        at += snprintf(at, (size_t)(end - at), "\"%s\":{\"dtype\":%d,\"sizes\":[", name[k],
                       in[k].dtype == AN_F64 ? 8 : 5);
        for (int a = 0; a < in[k].rank; a++)
            at += snprintf(at, (size_t)(end - at), "%s{\"as_int\":%d}", a ? "," : "", (int)in[k].dim[a]);
        at += snprintf(at, (size_t)(end - at), "],\"strides\":[]},");
    }
    at += snprintf(at, (size_t)(end - at), META("z", 8, "") "}},\"signature\":{\"input_specs\":[");
    for (int k = 0; k < n_in; k++)
        at += snprintf(at, (size_t)(end - at), "%s{\"user_input\":{\"arg\":{\"as_tensor\":{\"name\":\"%s\"}}}}",
                       k ? "," : "", name[k]);
    snprintf(at, (size_t)(end - at), "],\"output_specs\":[" OUT("z") "]}}}," NO_TENSORS "}");
    open_function(f, text);
}

#define INTS(name, list) ARG(name, "{\"as_ints\":[" list "]}")
#define SELF             ARG("self", TENSOR("x"))
#define GRID(mode, pads)                                                                                               \
    ARG("input", TENSOR("x"))                                                                                          \
    "," ARG("grid", TENSOR("y")) "," ARG("interpolation_mode", INT(mode)) "," ARG("padding_mode", INT(pads)) "," ARG(  \
        "align_corners", "{\"as_bool\":true}")

#endif

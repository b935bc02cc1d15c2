/* Archives of torch.export. The first byte picks what the rest is: 'z' a whole zip archive; 'd' the description that a
 * checkpoint keeps; 'm' the model of an archive whose checksums are right, with one weight of 64 bytes. Whatever the
 * bytes, a file that opens has tensors inside of it and nodes over values that are there, and describes itself. */
#include "import/pt2_graph.h"
#include "lib/make_zip.h"
#include "fuzz.h"

static bool check_arg(const an_pt2_graph *g, const an_pt2_arg *a)
{
    if (a->kind == AN_ARG_TENSOR) FUZZ_CHECK(a->value >= 0 && a->value < g->n_values);
    for (int32_t i = 0; a->kind == AN_ARG_TENSORS && i < a->n; i++)
        FUZZ_CHECK(a->values[i] >= -1 && a->values[i] < g->n_values);
    if (a->kind == AN_ARG_INT) FUZZ_CHECK(a->number.symbol < g->n_symbols);
    return true;
}

static bool check_graph(an_pt2 *a)
{
    an_pt2_graph g;
    an_err err = {0};
    an_status status = an_pt2_graph_open(&err, a, a->model, &g);
    fuzz_check_sentence(status, &err);
    for (int32_t i = 0; status == AN_OK && i < g.n_nodes; i++) {
        for (int32_t k = 0; k < g.node[i].n_in; k++) check_arg(&g, &g.node[i].in[k]);
        for (int32_t k = 0; k < g.node[i].n_out; k++) check_arg(&g, &g.node[i].out[k]);
    }
    an_pt2_graph_close(&g);
    return status == AN_OK;
}

static bool check(an_status status, const an_err *err, an_pt2 *a)
{
    bool taken = false;
    an_text text = {0};
    fuzz_check_sentence(status, err);
    if (status == AN_OK) {
        for (int32_t i = 0; i < a->n_tensors; i++) {
            const int64_t n = an_pt2_elements(&a->tensor[i]);
            FUZZ_CHECK(a->tensor[i].first >= 0 && a->tensor[i].first <= i);
            if (!a->tensor[i].data || n > 4096) continue;
            void *data = malloc((size_t)n * 8 + 1);
            FUZZ_CHECK(data != NULL);
            (void)an_pt2_read(NULL, a, &a->tensor[i], data);
            free(data);
        }
        FUZZ_CHECK(an_pt2_describe(NULL, a, &text) == AN_OK);
        taken = check_graph(a);
    }
    an_text_free(&text);
    an_pt2_close(a);
    return taken;
}

#define CONFIG                                                                                                         \
    "{\"config\":{\"w\":{\"path_name\":\"weight_0\",\"is_param\":true,\"use_pickle\":false,\"tensor_meta\":{"          \
    "\"dtype\":7,\"sizes\":[{\"as_int\":2},{\"as_int\":3}],\"strides\":[{\"as_int\":3},{\"as_int\":1}],"               \
    "\"storage_offset\":{\"as_int\":1},\"requires_grad\":true}}}}"
#define META                                                                                                           \
    "{\"dtype\":7,\"sizes\":[{\"as_int\":2},{\"as_expr\":{\"expr_str\":\"s0\",\"hint\":{\"as_int\":3}}}],\"strides\":" \
    "["                                                                                                                \
    "{\"as_int\":3},{\"as_int\":1}]}"
#define MODEL                                                                                                          \
    "{\"schema_version\":{\"major\":8,\"minor\":20},\"verifiers\":[\"TRAINING\"],\"graph_module\":{\"signature\":{"    \
    "\"input_specs\":[{\"parameter\":{\"arg\":{\"name\":\"p\"},\"parameter_name\":\"w\"}},{\"user_input\":{\"arg\":{"  \
    "\"as_tensor\":{\"name\":\"x\"}}}}],\"output_specs\":[{\"user_output\":{\"arg\":{\"as_tensor\":{\"name\":\"y\"}}}" \
    "}]},"                                                                                                             \
    "\"graph\":{\"tensor_values\":{\"p\":" META ",\"x\":" META ",\"y\":" META "},\"nodes\":[{\"target\":"              \
    "\"torch.ops.aten.sym_size.int\",\"inputs\":[{\"name\":\"self\",\"arg\":{\"as_tensor\":{\"name\":\"x\"}}},{"       \
    "\"name\":"                                                                                                        \
    "\"dim\",\"arg\":{\"as_int\":0}}],\"outputs\":[{\"as_sym_int\":{\"as_name\":\"n\"}}]},{\"target\":"                \
    "\"torch.ops.higher_order.wrap_with_set_grad_enabled\",\"inputs\":[{\"name\":\"\",\"arg\":{\"as_bool\":false}},{"  \
    "\"name\":\"\",\"arg\":{\"as_graph\":{\"name\":\"g\",\"graph\":{\"inputs\":[{\"as_tensor\":{\"name\":\"a\"}}],"    \
    "\"outputs\":[{\"as_tensor\":{\"name\":\"b\"}}],\"tensor_values\":{\"b\":" META "},\"nodes\":[{\"target\":"        \
    "\"torch.ops.aten.add.Tensor\",\"inputs\":[{\"name\":\"self\",\"arg\":{\"as_tensor\":{\"name\":\"a\"}}},{"         \
    "\"name\":"                                                                                                        \
    "\"other\",\"arg\":{\"as_float\":\"-Infinity\"}}],\"outputs\":[{\"as_tensor\":{\"name\":\"b\"}}]}]}}}},{\"name\":" \
    "\"\",\"arg\":{\"as_tensor\":{\"name\":\"x\"}}}],\"outputs\":[{\"as_tensor\":{\"name\":\"y\"}}]}]}}}"

static an_text archive_of(const char *model, size_t bytes)
{
    static const char storage[64] = {1, 2, 3};
    make_zip z = {0};
    make_zip_add(&z, "x/data/weights/model_weights_config.json", CONFIG, sizeof CONFIG - 1);
    make_zip_add(&z, "x/data/weights/weight_0", storage, sizeof storage);
    make_zip_add(&z, "x/models/model.json", model, bytes);
    make_zip_end(&z);
    return z.file;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_pt2 a;
    if (bytes == 0) return false;
    if (data[0] == 'd') return check(an_pt2_open_description(&err, "fuzz", data + 1, bytes - 1, &a), &err, &a);
    if (data[0] != 'm') {
        char *exact = malloc(bytes); /* at an address of its own, of its exact size */
        FUZZ_CHECK(exact != NULL);
        memcpy(exact, data + 1, bytes - 1);
        const bool taken = check(an_pt2_open_memory(&err, "fuzz", exact, bytes - 1, &a), &err, &a);
        free(exact);
        return taken;
    }
    an_text z = archive_of(data + 1, bytes - 1);
    FUZZ_CHECK(!z.failed);
    const bool taken = check(an_pt2_open_memory(&err, "fuzz", z.data, z.len, &a), &err, &a);
    an_text_free(&z);
    return taken;
}

static fuzz_seed seeds[] = {
    SEED("m" MODEL), SEED("d{\"model\":" MODEL ",\"weights\":" CONFIG "}"), {NULL, 0}, /* the archive of the first */
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    static an_text archive;
    if (!seeds[2].data) {
        an_text z = archive_of(MODEL, sizeof MODEL - 1);
        an_text_puts(&archive, "z");
        an_text_putn(&archive, z.data, z.len);
        an_text_free(&z);
        seeds[2] = (fuzz_seed){archive.data, archive.len};
    }
    *out = seeds;
    return AN_COUNT(seeds);
}

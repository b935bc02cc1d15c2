/* test_gpt_weights.c: files of weights that are almost a GPT-2 are refused with a sentence that helps. That whole ones
 * give the right model is tests/torch/test_weights.c. */
#include "models/gpt/gpt_weights.h"
#include "platform/platform.h"
#include "io/checkpoint.h"
#include "io/formats/torch_file.h"
#include "io_files.h"
#include "models/gpt/gpt_names.h"

#include <math.h>

enum { L = 2, C = 6, S = 5, V = 7 };
static const an_gpt_config config = {.vocab = V, .block = S, .layers = L, .heads = 2, .width = C, .bias = true};
static float numbers[V * C * 4 * C];
static an_err err;

/* What is different in a file from that of `config` under nanoGPT's names. */
typedef struct change {
    const char *prefix;      /* before every name; NULL: none */
    const char *leave_out;   /* this parameter is missing */
    const char *rename, *to; /* this one is called otherwise */
    const char *transpose;   /* this one is [in,out] */
    const char *extra;       /* a tensor [2] more */
    const char *wrong_dtype; /* this one is I32 */
    bool head, wrong_head;   /* lm_head.weight is there; and is another matrix */
    const char *beside;      /* text of config.json */
} change;

static const char *folder_file(const char *name)
{
    const char *dir = test_path("model");
    assert_int_equal(an_make_dirs(&err, dir, 0777), AN_OK);
    char part[64];
    snprintf(part, sizeof part, "model/%s", name);
    return test_path(part);
}

static const char *write_weights(const change *c)
{
    const char *path = folder_file("w.safetensors"), *beside = folder_file("config.json");
    an_st_writer *w;
    char name[AN_GPT_NAME_BYTES], full[300];
    an_shape shape;
    (void)unlink(beside);
    if (c->beside) test_write_file(beside, c->beside, strlen(c->beside));
    for (size_t i = 0; i < AN_COUNT(numbers); i++) numbers[i] = (float)i;
    assert_int_equal(an_st_begin(&err, path, &w), AN_OK);
    for (int64_t i = 0; an_gpt_parameter_at(&config, i, name, &shape); i++) {
        int64_t dim[2] = {shape.dim[0], shape.dim[1]};
        if (c->leave_out && strcmp(name, c->leave_out) == 0) continue;
        if (c->transpose && strcmp(name, c->transpose) == 0) dim[0] = shape.dim[1], dim[1] = shape.dim[0];
        const bool renamed = c->rename && strcmp(name, c->rename) == 0;
        const bool wrong = c->wrong_dtype && strcmp(name, c->wrong_dtype) == 0;
        snprintf(full, sizeof full, "%s%s", c->prefix ? c->prefix : "", renamed ? c->to : name);
        assert_int_equal(an_st_add(&err, w, full, wrong ? AN_I32 : AN_F32, shape.rank, dim, numbers), AN_OK);
    }
    if (c->head)
        assert_int_equal(
            an_st_add(&err, w, "lm_head.weight", AN_F32, 2, (int64_t[]){V, C}, numbers + (c->wrong_head ? 1 : 0)),
            AN_OK);
    if (c->extra) assert_int_equal(an_st_add(&err, w, c->extra, AN_F32, 1, (int64_t[]){2}, numbers), AN_OK);
    if (an_st_commit(&err, w) != AN_OK) fail_msg("%s", err.text);
    return path;
}

static an_st *open_change(const change *c)
{
    an_st *st;
    err = (an_err){0};
    return an_gpt_weights_open(&err, write_weights(c), &st) == AN_OK ? st : NULL;
}

static void refused(const change *c, const char *part)
{
    an_st *st = open_change(c);
    if (st) fail_msg("taken, instead of: %s", part);
    assert_contains(err.text, "w.safetensors: ");
    assert_contains(err.text, part);
    assert_null(strchr(err.text, '\n'));
}

static const char heads[] = "{\"n_head\": 2}";

static void prefixes_and_a_tied_head_are_taken(void **state)
{
    (void)state;
    static const change kinds[] = {{.beside = heads},
                                   {.beside = heads, .prefix = "_orig_mod."},
                                   {.beside = heads, .head = true},
                                   {.beside = heads, .extra = "h.1.attn.masked_bias"},
                                   {.beside = heads, .extra = "transformer.h.0.attn.bias"}};
    for (size_t i = 0; i < AN_COUNT(kinds); i++) {
        an_st *st = open_change(&kinds[i]);
        an_gpt_config c;
        if (!st) fail_msg("%zu: %s", i, err.text);
        assert_int_equal(an_gpt_weights_config(&err, st, &c), AN_OK);
        assert_int_equal(c.layers * 1000 + c.heads * 100 + c.width * 10 + c.block, L * 1000 + 2 * 100 + C * 10 + S);
        assert_int_equal(c.vocab, V);
        assert_true(c.bias);
        assert_int_equal(an_st_count(st), 2 + 12 * L + 2);
        assert_non_null(an_st_find(st, "transformer.h.1.mlp.c_proj.bias"));
        an_st_close(st);
    }
}

static void a_key_without_a_place_is_named_with_the_nearest(void **state)
{
    (void)state;
    refused(&(change){.beside = heads, .extra = "h.0.attn.rotary"},
            "tensor \"h.0.attn.rotary\" has no place in a GPT-2");
    refused(&(change){.beside = heads, .extra = "transformer.h.2.ln_2.weight"},
            "\"transformer.h.2.ln_2.weight\" has no place");
    refused(&(change){.beside = heads,
                      .rename = "transformer.h.1.mlp.c_fc.weight",
                      .to = "transformer.h.1.mlp.c_fs.weight"},
            "there is no tensor transformer.h.1.mlp.c_fc.weight, which a GPT-2 has; the nearest in the file is "
            "transformer.h.1.mlp.c_fs.weight");
    refused(&(change){.beside = heads, .rename = "transformer.wte.weight", .to = "transformer.wtf.weight"},
            "no tensor transformer.wte.weight, which a GPT-2 has; the nearest in the file is transformer.wtf.weight");
    refused(&(change){.beside = heads, .leave_out = "transformer.h.0.ln_1.bias"},
            "no tensor transformer.h.0.ln_1.bias");
    refused(&(change){.beside = heads, .leave_out = "transformer.h.0.ln_1.weight"}, "transformer.h.0.ln_1.weight");
    refused(&(change){.beside = heads, .extra = "wte.weight"}, "is there twice, with and without a prefix");
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    refused(&(change){.beside = heads, .extra = name}, "has no place in a GPT-2");
}

static void shapes_and_dtypes_that_disagree_are_refused(void **state)
{
    (void)state;
    refused(&(change){.beside = heads, .transpose = "transformer.h.1.mlp.c_fc.weight"},
            "transformer.h.1.mlp.c_fc.weight is [6,24], the other tensors make it [24,6]");
    refused(&(change){.beside = heads, .transpose = "transformer.h.0.attn.c_attn.weight"}, "the other tensors make it");
    refused(&(change){.beside = heads, .wrong_dtype = "transformer.ln_f.weight"},
            "transformer.ln_f.weight is I32; weights must be F32, F16 or BF16");
    refused(&(change){.beside = heads, .head = true, .wrong_head = true},
            "lm_head.weight differs from transformer.wte.weight");
}

static void the_number_of_heads_is_asked_for(void **state)
{
    (void)state;
    refused(&(change){.beside = NULL}, "put a config.json with \"n_head\" beside the file");
    refused(&(change){.beside = "{\"n_head\": 4}"}, "n_embd must be a multiple of n_head");
    refused(&(change){.beside = "{\"n_head\": 2, \"n_embd\": 8}"}, "n_embd is 6, the config.json beside it says 8");
    refused(&(change){.beside = "{\"n_head\": 2, \"layer_norm_epsilon\": 1e-6}"},
            "layer_norm_epsilon 1e-06; anneal's is 1e-5");
    err = (an_err){0};
    an_st *st;
    assert_int_equal(an_gpt_weights_open(&err, write_weights(&(change){.beside = "{"}), &st), AN_E_IO);
    assert_contains(err.text, "config.json: byte ");
}

static void half_precision_becomes_f32_exactly(void **state)
{
    (void)state;
    static const uint16_t half[V * C] = {0x3C00, 0xC000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0x8000, 0x3555};
    static const float f16[] = {1, -2, 0x1p-24f, 0x1.ff8p-15f, 0x1p-14f, 65504, INFINITY, -0.0f, 0x1.554p-2f};
    static const uint16_t bf16[V * C] = {0x3F80, 0xC000, 0x0001};
    for (int kind = 0; kind < 2; kind++) {
        const char *path = folder_file("half.safetensors");
        an_st_writer *w;
        an_st *st;
        char name[AN_GPT_NAME_BYTES];
        an_shape shape;
        test_write_file(folder_file("config.json"), heads, strlen(heads));
        assert_int_equal(an_st_begin(&err, path, &w), AN_OK);
        for (int64_t i = 0; an_gpt_parameter_at(&config, i, name, &shape); i++)
            assert_int_equal(an_st_add(&err, w, name,
                                       i      ? AN_F32
                                       : kind ? AN_BF16
                                              : AN_F16,
                                       shape.rank, shape.dim,
                                       i      ? (const void *)numbers
                                       : kind ? bf16
                                              : half),
                             AN_OK);
        assert_int_equal(an_st_commit(&err, w), AN_OK);
        if (an_gpt_weights_open(&err, path, &st) != AN_OK) fail_msg("%s", err.text);
        const an_st_tensor *t = an_st_find(st, "transformer.wte.weight");
        const uint32_t smallest = 0x00010000;
        assert_int_equal(t->dtype, AN_F32);
        if (kind == 0)
            assert_memory_equal(t->data, f16, sizeof f16);
        else
            assert_memory_equal((const char *)t->data + 8, &smallest, 4);
        an_st_close(st);
    }
}

/* The checkpoint of tests/torch, cut and changed. */
static void a_damaged_ckpt_pt_is_refused_with_the_byte(void **state)
{
    (void)state;
    char *data;
    size_t n;
    an_st *st;
    assert_int_equal(an_file_read(&err, "tests/torch/nanogpt.pt", 1 << 20, &data, &n), AN_OK);
    for (size_t keep = 0; keep < n; keep += 997) {
        err = (an_err){0};
        if (an_weights_open_torch(&err, "cut.pt", data, keep, &st) == AN_OK) fail_msg("%zu bytes were taken", keep);
        assert_contains(err.text, "cut.pt: byte ");
    }
    for (size_t at = 64; at < n; at += 1009) {
        data[at] ^= 0x10;
        err = (an_err){0};
        if (an_weights_open_torch(&err, "bad.pt", data, n, &st) == AN_OK)
            an_st_close(st); /* in the padding, or in a member that is not read */
        else
            assert_contains(err.text, "bad.pt: ");
        data[at] ^= 0x10;
    }
    free(data);
    const char *old = temp_file("old.pt", "\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 16);
    err = (an_err){0};
    assert_int_equal(an_weights_open(&err, old, &st), AN_E_UNSUPPORTED);
    assert_contains(err.text, "the format of PyTorch before 1.6; load it there and torch.save it again");
}

static an_status open_and_write(an_err *e, void *arg)
{
    an_st *st;
    AN_TRY(an_gpt_weights_open(e, "tests/torch/nanogpt.pt", &st));
    an_status status = an_gpt_weights_write(e, st, AN_GPT_HUGGING_FACE, arg);
    an_st_close(st);
    if (status == AN_OK) status = an_gpt_weights_open(e, arg, &st);
    if (status == AN_OK) an_st_close(st);
    return status;
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    test_refuse_each_allocation(open_and_write, (void *)(uintptr_t)folder_file("out.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_and_a_tied_head_are_taken),
        cmocka_unit_test(a_key_without_a_place_is_named_with_the_nearest),
        cmocka_unit_test(shapes_and_dtypes_that_disagree_are_refused),
        cmocka_unit_test(the_number_of_heads_is_asked_for),
        cmocka_unit_test(half_precision_becomes_f32_exactly),
        cmocka_unit_test(a_damaged_ckpt_pt_is_refused_with_the_byte),
        cmocka_unit_test(a_refused_allocation_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_sampling.c: what a drawn token takes on a GPU: one replayed graph from the embedding to the token, one copy of its position to
 * the device, and nothing back but the tokens, up to 16 at a time. The driver is fake_cuda.c, which counts. */
#define _GNU_SOURCE /* setenv */
#include <anneal.h> /* first: it brings the spellings for users */
#include "models/model.h"
#include "cuda/fake.h"

#include "infer/generate.h"
#include "runtime/context.h"
#include "train/task.h"

typedef struct counts {
    int captures;
    size_t kernels, gemms, replays, to_device, to_host, bytes, follow;
} counts;

typedef struct texts {
    int64_t drawn, stop_after, waits, together;
} texts;

static int start(void **state)
{
    (void)state;
    fake_build();
    const char *compiler = getenv("AN_NVRTC"); /* takes every text of a token */
    if (compiler && *compiler && !fake_is_real()) setenv("FAKE_NVRTC", compiler, 1), setenv("FAKE_NVRTC_EVERY", "1", 1);
    return 0;
}

static bool take(void *arg, int64_t text, int32_t id)
{
    texts *t = arg;
    assert_in_range(text, 0, t->together ? t->together - 1 : 0);
    assert_int_equal(id, 0); /* the stand-in computes nothing: states keep their zeros */
    return ++t->drawn != t->stop_after;
}

/* What one text of so many tokens behind 20 took, in a process that only drew it. */
static counts drawn(int64_t tokens, texts *t)
{
    const int32_t prompt[20] = {0};
    an_err err = {0};
    an_train_config c;
    an_session *r;
    counts n = {0};
    an_generate_result result;
    fake_reset();
    setenv("FAKE_CUDA_COUNTS", test_path("counts"), 1);
    if (an_train_config_open(&err, "macbook", &c) != AN_OK) fail_msg("%s", err.text);
    snprintf(c.device, sizeof c.device, "cuda");
    c.dtype = AN_BF16;
    snprintf(c.cache_dir, sizeof c.cache_dir, "%s", test_path("cache"));
    an_task_assume(&c);
    if (an_session_open(&err, &c, NULL, AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) fail_msg("%s", err.text);
    const an_generate_options o = {
        .sampler = {.temperature = 0.8, .top_k = 200, .seed = 1}, .tokens = tokens, .texts = t->together};
    if (an_generate(&err, r, &o, prompt, 20, take, t, &result) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(result.tokens, t->drawn);
    t->waits = r->cx->waits;
    an_session_close(r);
    unsetenv("FAKE_CUDA_COUNTS");
    FILE *f = fopen(test_path("counts"), "r");
    if (!f ||
        fscanf(
            f,
            "kernels %zu gemms %zu captures %d replays %zu beside %*u to_device %zu to_host %zu bytes %zu follow %zu",
            &n.kernels, &n.gemms, &n.captures, &n.replays, &n.to_device, &n.to_host, &n.bytes, &n.follow) != 8)
        fail_msg("no counts");
    fclose(f);
    fake_clean();
    return n;
}

/* The stand-in counts for the life of a process, so each text is compared with the one before it. */
static void a_token_is_one_replay_and_one_copy_of_its_position(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver counts nothing");
    texts none = {0}, few = {0}, many = {0};
    const counts a = drawn(1, &none), b = drawn(10, &few), c = drawn(40, &many);
    const size_t replays = (c.replays - b.replays) - (b.replays - a.replays),
                 to_device = (c.to_device - b.to_device) - (b.to_device - a.to_device),
                 to_host = (c.to_host - b.to_host) - (b.to_host - a.to_host);
    assert_int_equal(many.drawn, 40);
    assert_int_equal(replays, 30);
    assert_int_equal(to_device, 30);
    assert_true(to_host <=
                3); /* groups of 1, 1, 2, 4, 8, 16: 10 tokens in 5 reads, 40 in 7 or 8, where nothing is slow */
    assert_int_equal(c.captures - b.captures, b.captures - a.captures); /* the same graphs, each captured once */
    assert_int_equal(many.waits - few.waits, to_host);
}

/* The stand-in complains where a kernel that does not wait by itself, or follows none, may begin early. */
static void kernels_of_a_token_begin_while_the_one_before_ends(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver counts nothing");
    texts t[3] = {{0}};
    setenv("ANNEAL_CUDA_FOLLOW", "0", 1);
    const counts before = drawn(4, &t[0]);
    unsetenv("ANNEAL_CUDA_FOLLOW");
    const counts on = drawn(4, &t[1]);
    setenv("ANNEAL_CUDA_FOLLOW", "0", 1);
    const counts off = drawn(4, &t[2]);
    unsetenv("ANNEAL_CUDA_FOLLOW");
    const size_t kernels = on.kernels - before.kernels;
    assert_in_range(on.follow - before.follow, kernels / 2, kernels - 1);
    assert_int_equal(off.follow, on.follow);
}

static void a_text_that_ends_early_throws_the_rest_of_its_group_away(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver draws other tokens");
    texts t = {.stop_after = 7};
    drawn(40, &t);
    assert_int_equal(t.drawn, 7);
}

/* The context of `macbook` is 64 tokens: 20 and 44 fill it, then its newer half is prefilled. */
/* Of several texts a token of each is one replay, too. */
static void several_texts_are_drawn_together(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver draws other tokens");
    texts few = {.together = 5}, many = {.together = 5}, long_ones = {.together = 3};
    const counts a = drawn(10, &few), b = drawn(30, &many);
    assert_int_equal(few.drawn, 5 * 10);
    assert_int_equal(many.drawn, 5 * 30);
    const size_t first = a.replays, second = b.replays - a.replays;
    assert_true(second <= first + 20); /* `first` also counts the tests before */
    drawn(200, &long_ones);
    assert_int_equal(long_ones.drawn, 3 * 200);
}

static void a_full_context_slides(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver draws other tokens");
    texts t = {0};
    drawn(200, &t);
    assert_int_equal(t.drawn, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_one_replay_and_one_copy_of_its_position),
        cmocka_unit_test(kernels_of_a_token_begin_while_the_one_before_ends),
        cmocka_unit_test(a_text_that_ends_early_throws_the_rest_of_its_group_away),
        cmocka_unit_test(a_full_context_slides),
        cmocka_unit_test(several_texts_are_drawn_together),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}

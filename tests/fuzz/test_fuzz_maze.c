/* Files of mazes: source,question,answer,rating. Of what is taken, the data set that is made opens again and holds each maze
 * with its shortest path. */
#include "io/data/maze_set.h"
#include "io/data/puzzle_set.h"
#define FUZZ_ROUNDS 200
#include "fuzz.h"

static void check_set(const char *dir, const char *split, int64_t examples)
{
    an_err err = {0};
    an_puzzle_set *s;
    FUZZ_CHECK(an_puzzle_set_open(&err, &dir, 1, split, &s) == AN_OK);
    const an_puzzle_meta *m = an_puzzle_set_meta(s);
    FUZZ_CHECK(an_puzzle_set_examples(s) == examples && m->seq_len <= AN_MAZE_MAX_SIDE * AN_MAZE_MAX_SIDE);
    static int32_t x[AN_MAZE_MAX_SIDE * AN_MAZE_MAX_SIDE], y[AN_MAZE_MAX_SIDE * AN_MAZE_MAX_SIDE];
    for (int64_t e = 0; e < examples; e++) {
        int32_t id, begin = 0, end = 0;
        FUZZ_CHECK(an_puzzle_set_read(&err, s, e, x, y, &id) == AN_OK);
        for (int64_t i = 0; i < m->seq_len; i++) { /* tokens from 1: # blank S G o */
            FUZZ_CHECK(x[i] >= 1 && x[i] <= 4 && (y[i] == x[i] || (x[i] == 2 && y[i] == 5)));
            begin += x[i] == 3, end += x[i] == 4;
        }
        FUZZ_CHECK(begin == 1 && end == 1);
    }
    an_puzzle_set_close(s);
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_maze_result r;
    const char *path = test_path("mazes.csv"), *out = test_path("mazes");
    test_write_file(path, data, bytes);
    an_status status =
        an_maze_build(&err, &(an_maze_options){.from = path, .out = out, .test_size = 1, .aug = true}, &r);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    FUZZ_CHECK(r.train > 0 && r.examples == 8 * r.train && r.test == 1 && r.shortest > 0 && r.longest >= r.shortest);
    check_set(out, "train", r.examples);
    check_set(out, "test", r.test);
    return true;
}

#define TWO "x,S G####  ,SoG####  ,3\n"
static const fuzz_seed seeds[] = {
    SEED("source,question,answer,rating\n" TWO "y,\"S##  #  G\",\"S##oo# oG\",1\n"),
    SEED("source,question,answer,rating\r\n"
         "z,SG  ,SG  \r\nz,SG  ,SG  \nw,S  G,So G,2\n"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}

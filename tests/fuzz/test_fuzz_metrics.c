/* metrics.jsonl: any bytes are read as a curve, drawn, and cut for a run that goes on. The curve's points are in order, the
 * picture has a bounded size, and cutting keeps every line that is not of a later step: a second time it changes nothing. */
#include "io/formats/jsonl.h"
#include "report/loss_curve.h"
#include "fuzz.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *folder(void)
{
    static char path[64];
    if (path[0]) return path;
    snprintf(path, sizeof path, "%s/anneal-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (long)getpid());
    FUZZ_CHECK(an_make_dirs(NULL, path, 0700) == AN_OK);
    return path;
}

static const char *metrics(void)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder());
    return path;
}

static void remove_files(void)
{
    (void)remove(metrics());
    (void)remove(folder());
}

static uint64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static bool check_curve(void)
{
    enum { MOST_BYTES = 1 << 20 }; /* 1,024 points of at most a hundred bytes each, and the frame */
    an_curve c;
    an_err err = {0};
    an_text svg = {0};
    FUZZ_CHECK(an_curve_read(&err, folder(), &c) == AN_OK);
    for (size_t i = 1; i < c.n; i++) FUZZ_CHECK(c.point[i].step >= c.point[i - 1].step);
    if (c.n > 0) an_curve_svg(&c, "fuzz", &svg);
    FUZZ_CHECK(!svg.failed && svg.len < MOST_BYTES);
    const bool some = c.n > 0;
    an_text_free(&svg);
    an_curve_free(&c);
    return some;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    static bool registered;
    uint64_t removed;
    an_err err = {0};
    if (!registered) registered = atexit(remove_files) == 0;
    FILE *f = fopen(metrics(), "wb");
    FUZZ_CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    const bool taken = check_curve();
    FUZZ_CHECK(an_jsonl_drop_after(&err, metrics(), "step", 10, &removed) == AN_OK);
    FUZZ_CHECK(size_of(metrics()) + removed == bytes);
    FUZZ_CHECK(an_jsonl_drop_after(&err, metrics(), "step", 10, &removed) == AN_OK && removed == 0);
    return taken;
}

static const fuzz_seed seeds[] = {
    SEED("{\"step\":0,\"loss\":4.5,\"lr\":0.001}\n{\"step\":1,\"loss\":4.25,\"val_loss\":4.5}\n"),
    SEED("{\"step\":11,\"loss\":1e17}\n{\"step\":3,\"loss\":100000000000000016}\n{\"step\":-1,\"loss\":null}\n"),
    SEED("damaged\n{\"step\":9007199254740993,\"loss\":-1e308}\n{\"step\":2,\"loss\":1e308}\n{\"step\":4"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}

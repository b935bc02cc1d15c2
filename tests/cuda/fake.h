/* fake.h: builds fake_cuda.c into a folder of its own, under the three names that are looked for, and points
 * ANNEAL_CUDA_PATH at it: the backend's own object code then runs without a GPU. Tests run in the root of the source
 * tree. */
#ifndef AN_TESTS_CUDA_FAKE_H
#define AN_TESTS_CUDA_FAKE_H

#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fake_log_path[256];

/* Nothing is injected, the log is empty. */
static inline void fake_reset(void)
{
    static const char *const names[] = {"FAKE_CUDA_FAIL",  "FAKE_CUDA_VERSION", "FAKE_CUDA_ARCH", "FAKE_CUDA_BYTES",
                                        "FAKE_CUDA_STRAY", "ANNEAL_EXACT",      "ANNEAL_TF32",    "ANNEAL_CUDA_LAUNCH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    unlink(fake_log_path);
}

/* AN_CUDA_PROXY: ANNEAL_CUDA_PATH names proxy_cuda.c and the real libraries already (tests/cuda/on_gpu.sh). */
static inline bool fake_is_real(void)
{
    return getenv("AN_CUDA_PROXY") != NULL;
}

static inline void fake_build(void)
{
    char dir[200], path[512], command[2048];
    snprintf(dir, sizeof dir, "%s", test_path("cuda"));
    if (fake_is_real()) return;
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/libcuda.so.1", dir);
    snprintf(command, sizeof command,
             "%s -std=gnu17 -g -O1 -fPIC -shared -fvisibility=hidden -o %s tests/cuda/fake_cuda.c -lpthread -ldl",
             getenv("CC") ? getenv("CC") : "cc", path);
    if (system(command)) fail_msg("the driver's stand-in does not compile: %s", command);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "libcublasLt.so.13" : "libnvrtc.so.13");
        if (symlink("libcuda.so.1", path)) fail_msg("%s: no link", path);
    }
    snprintf(fake_log_path, sizeof fake_log_path, "%s", test_path("cuda.log"));
    setenv("ANNEAL_CUDA_PATH", dir, 1);
    setenv("FAKE_CUDA_LOG", fake_log_path, 1);
    fake_reset();
}

/* From now on there is a cuDNN, or none again. */
static inline void fake_cudnn(bool there)
{
    char path[512];
    if (fake_is_real()) return;
    snprintf(path, sizeof path, "%s/libcudnn.so.9", getenv("ANNEAL_CUDA_PATH"));
    if (there ? symlink("libcuda.so.1", path) && access(path, F_OK) : unlink(path)) fail_msg("%s: no link", path);
}

/* Fails with the first misuse that was seen, or what was left behind. */
static inline void fake_clean(void)
{
    char line[512] = "";
    FILE *f = fopen(fake_log_path, "r");
    if (f && fgets(line, sizeof line, f)) fail_msg("the driver was misused: %s", line);
    if (f) fclose(f);
}

#endif

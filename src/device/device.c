/* device.c: the list of backends. A new one is a line here. */
#include "device/device.h"

#include "base/text.h"
#include "device/ref/ref_device.h"

#include <string.h>

extern const an_backend an_backend_cpu, an_backend_cuda, an_backend_metal, an_backend_null_cpu, an_backend_null_cuda,
    an_backend_null_metal;

static const an_backend *const backends[] = {&an_backend_cpu,       &an_backend_cuda,     &an_backend_metal,
                                             &an_backend_ref,       &an_backend_null_cpu, &an_backend_null_cuda,
                                             &an_backend_null_metal};

/* PyTorch's names, which nanoGPT's settings files use. */
static const struct {
    const char *theirs, *ours;
} aliases[] = {{"mps", "metal"}, {"mps:0", "metal"}, {"null:mps", "null:metal"}, {"cuda:0", "cuda"}};

const an_backend *const *an_backend_all(int *n)
{
    *n = (int)AN_COUNT(backends);
    return backends;
}

const an_backend *an_backend_find(an_err *err, const char *name)
{
    const char *names[AN_COUNT(backends)];
    for (size_t i = 0; i < AN_COUNT(aliases); i++)
        if (!strcmp(name, aliases[i].theirs)) name = aliases[i].ours;
    if (!strncmp(name, "cuda:", 5)) {
        an_fail(err, AN_E_USAGE,
                "device \"%.60s\": a run uses one GPU, the first it sees: device=cuda, with "
                "CUDA_VISIBLE_DEVICES in the environment to choose which",
                name);
        return NULL;
    }
    for (size_t i = 0; i < AN_COUNT(backends); i++) {
        if (!strcmp(name, backends[i]->name)) return backends[i];
        names[i] = backends[i]->name;
    }
    const char *near = an_nearest(name, names, AN_COUNT(backends));
    an_text all = {0};
    for (size_t i = 0; i < AN_COUNT(backends); i++) an_text_printf(&all, "%s%s", i ? ", " : "", names[i]);
    an_fail(err, AN_E_USAGE, "there is no device \"%.60s\"%s%s%s; there are auto, %s", name,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"" : "", all.data ? all.data : "");
    an_text_free(&all);
    return NULL;
}

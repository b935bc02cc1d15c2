/* device.c: the list of backends. A new backend is a row here. Which one `auto` takes, and the sentence "not cuda: ..." of those
 * that it passed over: choose_device in runtime/open.c. */
#include "device/device.h"

#include <string.h>

#define BACKENDS(X) X(cpu) X(cuda) X(metal) X(ref) X(null_cpu) X(null_cuda) X(null_metal)

#define DECLARE(name) extern const an_backend an_backend_##name;
BACKENDS(DECLARE)

#define LIST(name) &an_backend_##name,
static const an_backend *const backends[] = {BACKENDS(LIST)};

const an_backend *const *an_backend_all(int *n)
{
    *n = (int)AN_COUNT(backends);
    return backends;
}

const an_backend *an_backend_auto(int i)
{
    for (int rank = 1; rank <= (int)AN_COUNT(backends); rank++)
        for (size_t b = 0; b < AN_COUNT(backends); b++)
            if (backends[b]->auto_rank == rank && i-- == 0) return backends[b];
    return NULL;
}

static bool is_called(const an_backend *b, const char *name)
{
    if (!strcmp(name, b->name)) return true;
    for (int i = 0; i < AN_DEVICE_ALIASES && b->aliases[i]; i++)
        if (!strcmp(name, b->aliases[i])) return true;
    return false;
}

/* "cuda:1", "mps:1": a device of a backend that runs on the first one only. */
static bool is_numbered(const an_backend *b, const char *name)
{
    char plain[32];
    const size_t n = strcspn(name, ":");
    if (!b->gpu || name[n] != ':' || n >= sizeof plain) return false;
    memcpy(plain, name, n);
    plain[n] = '\0';
    return is_called(b, plain);
}

const an_backend *an_backend_find(an_err *err, const char *name)
{
    const char *names[AN_COUNT(backends)];
    for (size_t i = 0; i < AN_COUNT(backends); i++) {
        const an_backend *b = backends[i];
        if (is_called(b, name)) return b;
        if (is_numbered(b, name)) {
            an_fail(err, AN_E_USAGE, "device \"%.60s\": a run uses one GPU, the first it sees: device=%s%s%s%s", name,
                    b->name, b->chosen_by ? ", with " : "", b->chosen_by ? b->chosen_by : "",
                    b->chosen_by ? " in the environment to choose which" : "");
            return NULL;
        }
        names[i] = b->name;
    }
    const char *near = an_nearest(name, names, AN_COUNT(backends));
    an_text all = {0};
    for (size_t i = 0; i < AN_COUNT(backends); i++) an_text_printf(&all, "%s%s", i ? ", " : "", names[i]);
    if (strncmp(name, "gpu", 3) == 0) near = "auto"; /* the first GPU that answers */
    an_fail(err, AN_E_USAGE, "there is no device \"%.60s\"%s%s%s; there are auto, %s", name,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"" : "", all.data ? all.data : "");
    an_text_free(&all);
    return NULL;
}

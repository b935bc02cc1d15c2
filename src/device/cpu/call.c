/* call.c: ops with a loop inside on the CPU. Filled op by op; an op that is not here is refused by name. */
#include "device/cpu/cpu_internal.h"

size_t an_call_scratch(const an_call_spec *s, int threads)
{
    (void)s;
    (void)threads;
    return 0;
}

an_status an_call_run(an_err *err, const an_call_spec *s, void *const *arg, void *scratch, an_pool *pool)
{
    (void)arg;
    (void)scratch;
    (void)pool;
    return an_fail(err, AN_E_UNSUPPORTED, "cpu: %s has no kernel on this device", an_ops[s->op].name);
}

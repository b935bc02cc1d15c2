/* device_check.c: see device_check.h. */
#define _DEFAULT_SOURCE
#include "report/device_check.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <string.h>

/* The context's recorded error as ours, after a call that gave `status`. */
static an_status result_of(an_err *err, an_ctx *cx, an_status status)
{
    if (!cx) return an_fail(err, AN_E_NOMEM, "no memory for a context");
    if (an_error(cx)) return an_fail(err, an_error_status(cx), "%s", an_error(cx));
    return status == AN_OK ? AN_OK
                           : an_fail(err, status, "the device returned status %d without a message", (int)status);
}

enum { M = 48, K = 64, N = 32 };

/* A x B in the run's dtype with a float32 result, into out [M,N]. */
static an_status matmul(an_err *err, an_ctx *cx, an_dtype dtype, float out[M * N])
{
    float a[M * K], b[K * N];
    for (int i = 0; i < M * K; i++) a[i] = (float)(i * 7 % 17 - 8) / 8;
    for (int i = 0; i < K * N; i++) b[i] = (float)(i * 5 % 13 - 6) / 8;
    an_tensor *x = an_cast(an_input(cx, AN_F32, AN_SHAPE(M, K), a), dtype); /* [M,K] */
    an_tensor *y = an_cast(an_input(cx, AN_F32, AN_SHAPE(K, N), b), dtype); /* [K,N] */
    an_tensor *z = an_matmul_as(x, y, AN_F32);                              /* [M,N] */
    an_status status = result_of(err, cx, an_eval(z));
    if (status == AN_OK) status = result_of(err, cx, an_read(z, out, M * N * sizeof *out));
    an_reset(cx);
    return status;
}

/* In a context of its own, so that the run's memory stays what its plan predicts. */
static an_status matmul_on(an_err *err, const an_options *o, an_dtype dtype, float out[M * N])
{
    an_ctx *cx = an_open(o);
    an_status status = result_of(err, cx, AN_OK);
    if (status == AN_OK) status = matmul(err, cx, dtype, out);
    an_close(cx);
    return status;
}

an_status an_prove_device(an_err *err, const an_options *device_options, an_dtype dtype, an_device_proof *out)
{
    float device[M * N], ref[M * N];
    an_device_facts facts;
    *out = (an_device_proof){.built = true, .available = true}; /* it opened, whatever name it goes by */
    if (an_device_find(device_options->device, &facts)) {
        out->built = facts.built;
        out->available = facts.available;
    }
    AN_TRY(matmul_on(err, &(an_options){.device = "ref"}, dtype, ref));
    AN_TRY(matmul_on(err, device_options, dtype, device));
    for (int i = 0; i < M * N; i++)
        if (device[i] != ref[i])
            return an_fail(err, AN_E_DEVICE,
                           "the device's matmul [%d,%d]x[%d,%d] has %.9g at [%d,%d], where the oracle has %.9g: do not "
                           "train on it; anneal selftest looks at every kernel",
                           M, K, K, N, (double)device[i], i / N, i % N, (double)ref[i]);
    snprintf(out->sentence, sizeof out->sentence, "[%d,%d]x[%d,%d] %s equals ref to the bit", M, K, K, N,
             an_dtype_text(dtype));
    return AN_OK;
}

/* bench_library.h: the GPU and cuBLASLt, opened for a benchmark of the library's products; what fails ends the program with a line. Static
 * state: for one program's one source file. */
#ifndef AN_BENCH_LIBRARY_H
#define AN_BENCH_LIBRARY_H

#include "device/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>

static const char *program; /* its name, before what failed */
static an_cuda_driver cu;
static an_cublaslt lt;
static lt_handle handle;
static cu_stream stream;
static cu_event event[2];

static void die(const char *what, int code)
{
    fprintf(stderr, "%s: %s: %d\n", program, what, code);
    exit(1);
}
static void ok(int code, const char *what)
{
    if (code) die(what, code);
}

/* The first GPU, with a stream and two events. */
static cu_device open_library(const char *name)
{
    an_err err = {0};
    cu_device device;
    cu_context context;
    program = name;
    if (an_cuda_driver_find(&err, &cu) != AN_OK || cu.init(0) || cu.device_get(&device, 0) ||
        cu.context_retain(&context, device) || cu.context_use(context) ||
        an_cublaslt_find(&err, cu.version / 1000, &lt) != AN_OK)
        die(err.code ? err.text : "no GPU", 0);
    ok(lt.create(&handle), "cublasLtCreate");
    ok(cu.stream_new(&stream, CU_STREAM_NON_BLOCKING), "stream");
    for (int i = 0; i < 2; i++) ok(cu.event_new(&event[i], 0), "event");
    return device;
}

#endif

/* arrays.c: one block of memory for the arrays of a batch. See arrays.h. */
#include "io/data/arrays.h"
#include <stdlib.h>
#include <string.h>

size_t an_array_bytes(const an_array *a)
{
    size_t n = an_dtype_size(a->dtype);
    for (int i = 0; i < a->shape.rank; i++) n *= (size_t)a->shape.dim[i];
    return n;
}

size_t an_arrays_layout(const an_array *a, int n, size_t offset[AN_MAX_ARRAYS])
{
    size_t bytes = 0, align = 1;
    for (int i = 0; i < n; i++) {
        const size_t element = an_dtype_size(a[i].dtype);
        bytes = (bytes + element - 1) / element * element;
        if (offset) offset[i] = bytes;
        bytes += an_array_bytes(&a[i]);
        align = AN_MAX(align, element);
    }
    return (bytes + align - 1) / align * align;
}

an_status an_arrays_open(an_err *err, const an_array *a, int n, an_arrays *out)
{
    size_t offset[AN_MAX_ARRAYS];
    const size_t bytes = an_arrays_layout(a, n, offset);
    *out = (an_arrays){.memory = calloc(1, bytes + 1)};
    if (!out->memory) return an_fail_nomem(err, "a batch", bytes);
    for (int i = 0; i < n; i++) out->data[i] = (char *)out->memory + offset[i];
    return AN_OK;
}

void an_arrays_close(an_arrays *x)
{
    free(x->memory);
    *x = (an_arrays){0};
}

/* One element from 31 random bits. */
static void put(const an_array *a, uint64_t bits, char *to)
{
    const int64_t id = (int64_t)(a->limit > 0 ? bits % (uint64_t)a->limit : bits & 127);
    const int32_t i32 = (int32_t)id;
    const uint8_t u8 = (uint8_t)id;
    const double f64 = (double)bits * 0x1p-30 - 1;
    const float f32 = (float)f64;
    switch (a->dtype) {
    case AN_I32: memcpy(to, &i32, sizeof i32); break;
    case AN_I64: memcpy(to, &id, sizeof id); break;
    case AN_F32: memcpy(to, &f32, sizeof f32); break;
    case AN_F64: memcpy(to, &f64, sizeof f64); break;
    case AN_BOOL: *to = (char)(bits & 1); break;
    default: *to = (char)u8; break; /* bytes; no model takes 16-bit floats as inputs */
    }
}

void an_arrays_random(const an_array *a, int n, uint64_t seed, void *const *data)
{
    uint64_t state = seed; /* Knuth's MMIX generator; its high bits are good enough */
    for (int i = 0; i < n; i++) {
        const size_t element = an_dtype_size(a[i].dtype), bytes = an_array_bytes(&a[i]);
        for (size_t at = 0; at < bytes; at += element) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            put(&a[i], state >> 33, (char *)data[i] + at);
        }
    }
}

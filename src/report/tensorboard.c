/* tensorboard.c: see tensorboard.h.
 *
 *     frame   u64 length, u32 masked crc of it, the message, u32 masked crc of that; little-endian
 *     Event   1: f64 wall_time, 2: varint step, 3: text file_version, 5: Summary
 *     Summary 1: Value, repeated;  Value  1: text tag, 2: f32 simple_value */
#define _DEFAULT_SOURCE
#include "report/tensorboard.h"
#include "platform/platform.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_VALUES = 32, MOST_TAG = 64, MESSAGE_BYTES = 64 + MOST_VALUES * (MOST_TAG + 16), FRAME_BYTES = 16 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* protobuf's wire types */

typedef struct message {
    unsigned char bytes[MESSAGE_BYTES + FRAME_BYTES];
    size_t n;
} message;

static void put(message *m, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) m->bytes[m->n++] = (unsigned char)(x >> 8 * i);
}

static void put_varint(message *m, uint64_t x)
{
    for (; x >= 128; x >>= 7) put(m, (x & 127) | 128, 1);
    put(m, x, 1);
}

static void put_key(message *m, int field, int wire)
{
    put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_bytes(message *m, int field, const void *data, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    memcpy(m->bytes + m->n, data, n);
    m->n += n;
}

/* CRC-32C (Castagnoli), bit by bit: an event has some hundred bytes. */
static uint32_t masked_crc(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t crc = 0xFFFFFFFF;
    while (n-- > 0) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? 0x82F63B78u ^ crc >> 1 : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void begin_event(message *m)
{
    double now = (double)time(NULL);
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    m->n = 0;
    put_key(m, 1, FIXED64);
    put(m, bits, 8);
}

static an_status write_frame(an_err *err, an_tensorboard *t, const message *m)
{
    message f = {.n = 0};
    put(&f, m->n, 8);
    put(&f, masked_crc(f.bytes, 8), 4);
    memcpy(f.bytes + f.n, m->bytes, m->n);
    f.n += m->n;
    put(&f, masked_crc(m->bytes, m->n), 4);
    const ssize_t n = write(t->fd, f.bytes, f.n);
    if (n == (ssize_t)f.n) return AN_OK;
    return an_fail(err, AN_E_IO, "%s: cannot be written to: %s", t->path, n < 0 ? strerror(errno) : "the disk is full");
}

an_status an_tensorboard_open(an_err *err, const char *dir, an_tensorboard *out)
{
    static const char version[] = "brain.Event:2";
    char random[AN_RANDOM_NAME_BYTES];
    message m;
    out->fd = -1;
    an_random_name(random);
    if (snprintf(out->path, sizeof out->path, "%s/events.out.tfevents.%lld.%s", dir, (long long)time(NULL), random) >=
        (int)sizeof out->path)
        return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", dir);
    AN_TRY(an_file_open(err, out->path, O_RDWR | O_CREAT | O_APPEND, &out->fd));
    begin_event(&m);
    put_bytes(&m, 3, version, sizeof version - 1);
    an_status status = write_frame(err, out, &m);
    if (status != AN_OK) an_tensorboard_close(out);
    return status;
}

an_status an_tensorboard_add(an_err *err, an_tensorboard *t, int64_t step, const an_scalar_value *v, int n)
{
    message m, summary = {.n = 0};
    for (int i = 0; i < n && i < MOST_VALUES; i++) {
        message value = {.n = 0};
        const float x = (float)v[i].value;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        put_bytes(&value, 1, v[i].tag, strnlen(v[i].tag, MOST_TAG));
        put_key(&value, 2, FIXED32);
        put(&value, bits, 4);
        put_bytes(&summary, 1, value.bytes, value.n);
    }
    begin_event(&m);
    put_key(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    put_bytes(&m, 5, summary.bytes, summary.n);
    return write_frame(err, t, &m);
}

void an_tensorboard_close(an_tensorboard *t)
{
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}
